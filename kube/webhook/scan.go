package webhook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	admission "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Limits of an object under review. For comparison: an API server stores at most 1.5 MiB, and a pod of 50 containers
// with 40 variables each has 7,000 values. They limit the decoded size: {} is 3 bytes of text, but as a container it
// takes some 3 KiB in the pod, its copy and its patch.
const (
	maxObject   = 2 << 20 // bytes
	maxValues   = 10_000  // objects, lists and scalars
	maxElements = 1_000   // of one list
	maxDepth    = 100     // with the review around it
)

// maxField is the longest text field of a review outside the object, in bytes.
const maxField = 1 << 10

// excess is the refusal of an object beyond a limit.
func excess(format string, limit int) error { return refusal{text: fmt.Sprintf(format, limit)} }

// review is the API server's request, as far as an answer needs it, and the size of its object.
type review struct {
	metav1.TypeMeta
	Request struct {
		UID         types.UID
		Namespace   string
		Operation   admission.Operation
		SubResource string
		Object      json.RawMessage
	}
	values int
}

// read reads a review and measures its object. If the text is cut off, or nested too deep, the fields before the object
// are read, as the API server orders them.
func (r *review) read(text []byte) error {
	err := json.Unmarshal(text, r)
	object := []byte(r.Request.Object)
	if err != nil {
		var head []byte
		head, object, _ = bytes.Cut(text, []byte(`"object":`))
		*r = review{}
		if json.Unmarshal(append(bytes.Clone(head), `"object":null}}`...), r) != nil {
			return err
		}
	}
	q := &r.Request
	if max(len(q.UID), len(q.Namespace), len(q.Operation), len(q.SubResource)) > maxField {
		return fmt.Errorf("a field of the review is longer than %d bytes", maxField)
	}
	if tooLarge := r.measure(object); tooLarge != nil {
		return tooLarge
	}
	return err
}

// measure counts the values of an object, as far as its JSON text goes: it may be cut off.
func (r *review) measure(object []byte) error {
	if len(object) > maxObject {
		return excess("the object is larger than %d bytes", maxObject)
	}
	const around = 2 // the review and its request
	r.values = 0
	err := r.count(json.NewDecoder(bytes.NewReader(object)), around)
	if no, isExcess := errors.AsType[refusal](err); isExcess {
		return no
	}
	return nil // what is no JSON is read's error
}

// count counts one value and those in it.
func (r *review) count(text *json.Decoder, depth int) error {
	token, err := text.Token()
	if r.values++; err == nil && r.values > maxValues {
		err = excess("the object has more than %d values", maxValues)
	}
	open, isOpen := token.(json.Delim)
	if err != nil || !isOpen {
		return err
	}
	if depth++; depth > maxDepth {
		return excess("the review is nested deeper than %d", maxDepth)
	}
	for n := 0; text.More(); n++ {
		if open == '{' {
			_, err = text.Token() // its name
		} else if n == maxElements {
			err = excess("a list of the object has more than %d elements", maxElements)
		}
		if err == nil {
			err = r.count(text, depth)
		}
		if err != nil {
			return err
		}
	}
	_, err = text.Token()
	return err
}
