package webhook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Limits of an object under review. For comparison: an API server stores at most 1.5 MiB, and a pod of 50 containers with
// 40 variables each has 7,000 values. They limit the decoded size: {} is 3 bytes of text, but as a container it takes some
// 3 KiB in the pod, its copy and its patch.
const (
	maxObject   = 2 << 20 // bytes
	maxValues   = 10_000  // objects, lists and scalars
	maxElements = 1_000   // of one list
	maxDepth    = 100
)

// maxField limits a field of the review outside the object, in bytes.
const maxField = 1 << 10

// excessError is an object beyond the limits.
type excessError struct{ reason string }

func (e excessError) Error() string { return e.reason }

// scanner reads the few fields of a review that an answer needs, and measures its object.
type scanner struct {
	*json.Decoder
	body []byte
	kind metav1.TypeMeta
	out  *review
}

// scan reads a review, or the beginning of one: the fields before an error are in the result.
func scan(body []byte, out *review) (metav1.TypeMeta, error) {
	s := scanner{Decoder: json.NewDecoder(bytes.NewReader(body)), body: body, out: out}
	err := s.fields(func(name string) error {
		switch name {
		case "apiVersion":
			return text(s, &s.kind.APIVersion)
		case "kind":
			return text(s, &s.kind.Kind)
		case "request":
			return s.fields(s.request)
		}
		return s.Decode(&skipped{})
	})
	if err == nil {
		if _, err = s.Token(); err == nil {
			err = errors.New("more than one JSON value")
		} else if errors.Is(err, io.EOF) {
			err = nil
		}
	}
	return s.kind, err
}

func (s *scanner) request(name string) error {
	switch name {
	case "uid":
		return text(*s, &s.out.UID)
	case "operation":
		return text(*s, &s.out.Operation)
	case "subResource":
		return text(*s, &s.out.SubResource)
	case "namespace":
		return text(*s, &s.out.Namespace)
	case "object":
		return s.object()
	}
	return s.Decode(&skipped{})
}

// skipped is a value of which only the syntax matters.
type skipped struct{}

// UnmarshalJSON is json.Unmarshaler's.
func (*skipped) UnmarshalJSON([]byte) error { return nil }

func text[T ~string](s scanner, to *T) error {
	err := s.Decode(to)
	if len(*to) > maxField {
		return fmt.Errorf("a field of the review is longer than %d bytes", maxField)
	}
	return err
}

// fields calls f for each field of the object that begins here. f reads the value.
func (s *scanner) fields(f func(name string) error) error {
	token, err := s.Token()
	if err == nil && token != json.Delim('{') {
		return fmt.Errorf("%v where an object must be", token)
	}
	for err == nil && s.More() {
		if token, err = s.Token(); err == nil {
			name, _ := token.(string) // always
			err = f(name)
		}
	}
	if err == nil {
		_, err = s.Token() // the end of the object
	}
	return err
}

// object finds the object and measures it.
func (s *scanner) object() error {
	type level struct {
		isList bool
		n      int // of a list: elements; otherwise: names and values
	}
	var open []level
	start := -1
	for {
		token, err := s.Token()
		if err != nil {
			return err
		}
		delim, _ := token.(json.Delim)
		if start < 0 && delim != 0 {
			start = int(s.InputOffset()) - 1
		}
		if delim == '}' || delim == ']' {
			open = open[:len(open)-1]
		} else {
			if len(open) > 0 {
				in := &open[len(open)-1]
				if in.n++; !in.isList && in.n%2 == 1 {
					continue // a name
				}
				if in.isList && in.n > maxElements {
					return excessError{fmt.Sprintf("a list of the object has more than %d elements", maxElements)}
				}
			}
			if s.out.values++; s.out.values > maxValues {
				return excessError{fmt.Sprintf("the object has more than %d values", maxValues)}
			}
			if delim != 0 {
				open = append(open, level{isList: delim == '['})
			}
			if len(open) > maxDepth-2 { // the review and its request
				return excessError{fmt.Sprintf("the review is nested deeper than %d", maxDepth)}
			}
		}
		if len(open) > 0 {
			continue
		}
		end := int(s.InputOffset())
		if start < 0 {
			start = end // null, or another value that is no object
		}
		if end-start > maxObject {
			return excessError{fmt.Sprintf("the object is larger than %d bytes", maxObject)}
		}
		s.out.Object.Raw = s.body[start:end]
		return nil
	}
}
