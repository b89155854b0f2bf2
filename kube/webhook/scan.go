package webhook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
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

// maxField limits a field of the review outside the object, in bytes of JSON.
const maxField = 1 << 10

// errMalformed is the scanner's only error about the text.
var errMalformed = errors.New("malformed JSON")

// excessError is an object beyond the bounds.
type excessError struct{ reason string }

func (e excessError) Error() string { return e.reason }

// scanner follows the structure of a review while its bytes arrive: it counts the decoded values, and finds the few fields
// that an answer needs. It allocates only those.
type scanner struct {
	state   scanState
	offset  int    // bytes seen
	stack   []byte // '{' or '[' of each open value
	counts  []int  // elements of each
	isKey   bool   // of the current string
	path    [2]string
	literal []byte // the current key or field
	wanted  *[]byte

	values int

	apiVersion, kind               []byte
	uid, operation, sub, namespace []byte // JSON
	object                         bool   // there is an object
	start, end                     int    // of it; end is 0 until it is complete
}

type scanState byte

const (
	wantValue scanState = iota
	wantElement
	wantFirstKey
	wantKey
	wantColon
	wantComma
	inString
	inEscape
	inScalar
	atEnd
)

// write processes the next bytes. After an excessError the scanner has its state before the value that exceeded a limit.
func (s *scanner) write(b []byte) error {
	for i := 0; i < len(b); i++ {
		if s.state == inString {
			if skip := plain(b[i:]); skip > 0 { // most bytes of an object
				s.collect(b[i : i+skip])
				s.offset += skip
				if i += skip; i == len(b) {
					break
				}
			}
		}
		if err := s.step(b[i]); err != nil {
			return err
		}
		s.offset++
	}
	if s.inObject() && s.offset-s.start > maxObject || s.end-s.start > maxObject {
		return excessError{fmt.Sprintf("the object is larger than %d bytes", maxObject)}
	}
	return nil
}

// plain is the number of bytes before a quote, a backslash or a control character.
func plain(b []byte) int {
	for i, c := range b {
		if c == '"' || c == '\\' || c < ' ' {
			return i
		}
	}
	return len(b)
}

func (s *scanner) collect(b []byte) {
	if s.wanted != nil && len(s.literal) <= maxField {
		s.literal = append(s.literal, b[:min(len(b), maxField+1-len(s.literal))]...)
	}
}

func (s *scanner) step(c byte) error {
	switch s.state {
	case inString:
		s.collect([]byte{c})
		switch {
		case c == '\\':
			s.state = inEscape
		case c == '"':
			return s.closeString()
		case c < ' ':
			return errMalformed
		}
		return nil
	case inEscape:
		s.collect([]byte{c})
		s.state = inString
		return nil
	case inScalar:
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '.' || c == '-' || c == '+' || c == 'E' {
			return nil
		}
		s.closeValue()
	}
	if c == ' ' || c == '\t' || c == '\n' || c == '\r' {
		return nil
	}
	switch s.state {
	case wantElement:
		if c == ']' {
			s.pop()
			return nil
		}
		return s.openValue(c)
	case wantValue:
		return s.openValue(c)
	case wantFirstKey, wantKey:
		if c == '}' && s.state == wantFirstKey {
			s.pop()
			return nil
		}
		if c != '"' {
			return errMalformed
		}
		s.isKey, s.state = true, inString
		if depth := len(s.stack); depth <= len(s.path) {
			s.literal, s.wanted = s.literal[:0], &s.literal
		}
		return nil
	case wantColon:
		if c != ':' {
			return errMalformed
		}
		s.state = wantValue
		return nil
	case wantComma:
		isObject := s.stack[len(s.stack)-1] == '{'
		switch {
		case c == ',' && isObject:
			s.state = wantKey
		case c == ',':
			s.state = wantValue
		case c == '}' && isObject, c == ']' && !isObject:
			s.pop()
		default:
			return errMalformed
		}
		return nil
	}
	return errMalformed // after the end
}

// inObject reports whether the scanner is within request.object.
func (s *scanner) inObject() bool { return s.object && s.end == 0 }

// openValue begins a value with its first byte.
func (s *scanner) openValue(c byte) error {
	if s.inObject() {
		if s.values == maxValues {
			return excessError{fmt.Sprintf("the object has more than %d values", maxValues)}
		}
		if top := len(s.stack) - 1; s.stack[top] == '[' {
			if s.counts[top] == maxElements {
				return excessError{fmt.Sprintf("a list of the object has more than %d elements", maxElements)}
			}
			s.counts[top]++
		}
		s.values++
	} else if len(s.stack) == 2 && s.path == [2]string{"request", "object"} {
		if s.object {
			return errMalformed // two of them
		}
		s.object, s.start, s.values = true, s.offset, 1
	}
	switch {
	case c == '{' || c == '[':
		if len(s.stack) == maxDepth {
			return excessError{fmt.Sprintf("the review is nested deeper than %d", maxDepth)}
		}
		if len(s.stack) == 1 {
			s.path[1] = "" // a list has no keys
		}
		s.stack, s.counts = append(s.stack, c), append(s.counts, 0)
		if s.state = wantElement; c == '{' {
			s.state = wantFirstKey
		}
	case c == '"':
		s.state, s.isKey = inString, false
		if s.wanted = s.field(); s.wanted != nil {
			s.literal = append(s.literal[:0], c)
		}
	case c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-':
		s.state = inScalar
	default:
		return errMalformed
	}
	return nil
}

// field is the place to store the string that begins here; nil for most.
func (s *scanner) field() *[]byte {
	switch {
	case len(s.stack) == 1:
		switch s.path[0] {
		case "apiVersion":
			return &s.apiVersion
		case "kind":
			return &s.kind
		}
	case len(s.stack) == 2 && s.path[0] == "request":
		switch s.path[1] {
		case "uid":
			return &s.uid
		case "operation":
			return &s.operation
		case "subResource":
			return &s.sub
		case "namespace":
			return &s.namespace
		}
	}
	return nil
}

func (s *scanner) closeString() error {
	if s.isKey {
		if depth := len(s.stack); depth <= len(s.path) {
			s.path[depth-1] = string(bytes.TrimSuffix(s.literal, []byte{'"'}))
			s.wanted = nil
		}
		s.state = wantColon
		return nil
	}
	if s.wanted != nil {
		if len(s.literal) > maxField {
			return fmt.Errorf("a field of the review is longer than %d bytes", maxField)
		}
		*s.wanted = bytes.Clone(s.literal)
		s.wanted = nil
	}
	s.offset++ // the quote belongs to the value
	s.closeValue()
	s.offset--
	return nil
}

func (s *scanner) pop() {
	s.stack, s.counts = s.stack[:len(s.stack)-1], s.counts[:len(s.counts)-1]
	s.offset++
	s.closeValue()
	s.offset--
}

// closeValue is called with offset behind the value.
func (s *scanner) closeValue() {
	if s.state = wantComma; len(s.stack) == 0 {
		s.state = atEnd
	}
	if len(s.stack) == 2 && s.inObject() {
		s.end = s.offset
	}
}

// finish reports whether the text is complete.
func (s *scanner) finish() error {
	if s.state == inScalar && len(s.stack) == 0 {
		s.closeValue()
	}
	if s.state != atEnd {
		return errMalformed
	}
	return nil
}

// text reads a JSON string; empty for none.
func text(literal []byte) string {
	var out string
	_ = json.Unmarshal(literal, &out)
	return out
}
