package webhook

import (
	"bytes"
	"encoding/json"
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

// measure counts the values of an object. JSON text may be cut off.
func (r *review) measure(object []byte) error {
	if len(object) > maxObject {
		return excess("the object is larger than %d bytes", maxObject)
	}
	type level struct {
		isList bool
		commas int
	}
	open := []level{{}, {}} // the review and its request
	isText := false
	r.values = 1
	for i := 0; i < len(object) && len(open) > 1; i++ {
		c := object[i]
		switch {
		case isText && c == '\\':
			i++
		case c == '"':
			isText = !isText
		case isText:
		case c == '{' || c == '[':
			open = append(open, level{isList: c == '['})
			if i+1 < len(object) && object[i+1] != c+2 { // } or ], so it is not empty; each comma is one more value
				r.values++
			}
		case c == '}' || c == ']':
			open = open[:len(open)-1]
		case c == ',':
			in := &open[len(open)-1]
			in.commas++
			r.values++
			if in.isList && in.commas >= maxElements {
				return excess("a list of the object has more than %d elements", maxElements)
			}
		}
		switch {
		case r.values > maxValues:
			return excess("the object has more than %d values", maxValues)
		case len(open) > maxDepth:
			return excess("the review is nested deeper than %d", maxDepth)
		}
	}
	return nil
}
