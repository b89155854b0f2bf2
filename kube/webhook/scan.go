package webhook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Limits of an object under review. For comparison: an API server stores at most 1.5 MiB, and a pod of 50 containers
// with 40 variables each has 7,000 values. They limit the decoded size: {} is 3 bytes of text, but as a container it
// takes some 3 KiB in the pod, its copy and its patch.
const (
	maxObject   = 2 << 20 // bytes
	maxValues   = 10_000  // objects, lists and scalars
	maxElements = 1_000   // of one list
	maxDepth    = 100
)

// maxField is the longest text field of a review outside the object, in bytes.
const maxField = 1 << 10

// excessError is an object beyond the limits.
type excessError struct{ reason string }

func (e excessError) Error() string { return e.reason }

func excess(format string, limit int) error { return excessError{fmt.Sprintf(format, limit)} }

// level is a JSON object or list that is open.
type level struct {
	isList bool
	n      int    // of a list: elements; otherwise: names and values
	name   string // the latest one
}

// scan reads the few fields of a review that an answer needs, and measures its object. Those before an error, or before
// the end of a text that is cut off, are in out.
func scan(body []byte, out *review) error {
	d := json.NewDecoder(bytes.NewReader(body))
	var open []level
	start, isBegun := 0, false
	for {
		token, err := d.Token()
		switch {
		case errors.Is(err, io.EOF) && isBegun && len(open) == 0:
			return nil
		case err != nil:
			return err
		case isBegun && len(open) == 0:
			return errors.New("more than one JSON value")
		}
		isBegun = true
		delim, _ := token.(json.Delim)
		if delim == '}' || delim == ']' {
			if open = open[:len(open)-1]; isObject(open) {
				if out.Object.Raw = body[start:d.InputOffset()]; len(out.Object.Raw) > maxObject {
					return excess("the object is larger than %d bytes", maxObject)
				}
			}
			continue
		}
		inObject := len(open) > 1 && isObject(open[:2])
		if len(open) > 0 {
			in := &open[len(open)-1]
			if in.n++; !in.isList && in.n%2 == 1 {
				in.name, _ = token.(string) // always
				continue
			}
			if in.isList && in.n > maxElements && inObject {
				return excess("a list of the object has more than %d elements", maxElements)
			}
		}
		if inObject {
			if out.values++; out.values > maxValues {
				return excess("the object has more than %d values", maxValues)
			}
		}
		if err := out.set(open, token); err != nil {
			return err
		}
		if delim != 0 {
			if isObject(open) {
				start = int(d.InputOffset()) - 1
			}
			if open = append(open, level{isList: delim == '['}); len(open) > maxDepth {
				return excess("the review is nested deeper than %d", maxDepth)
			}
		}
	}
}

// isObject reports whether the value in these levels is the object under review.
func isObject(open []level) bool {
	return len(open) == 2 && open[0].name == "request" && open[1].name == "object" && !open[1].isList
}

// set takes over a value of the review, if it is one that an answer needs.
func (r *review) set(open []level, token json.Token) error {
	text, isText := token.(string)
	if !isText || len(open) == 0 || len(open) > 2 || open[len(open)-1].isList {
		return nil
	}
	var to *string
	switch name := open[len(open)-1].name; {
	case len(open) == 1 && name == "apiVersion":
		to = &r.kind.APIVersion
	case len(open) == 1 && name == "kind":
		to = &r.kind.Kind
	case len(open) == 1 || open[0].name != "request":
		return nil
	case name == "uid":
		to = (*string)(&r.UID)
	case name == "operation":
		to = (*string)(&r.Operation)
	case name == "subResource":
		to = &r.SubResource
	case name == "namespace":
		to = &r.Namespace
	default:
		return nil
	}
	if *to = text; len(text) > maxField {
		return fmt.Errorf("a field of the review is longer than %d bytes", maxField)
	}
	return nil
}
