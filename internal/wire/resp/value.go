package resp

import "bytes"

// value follows one value after another, by the types and lengths at the beginning of its lines. Of nested values only
// the number is kept that are still to come.
type value struct {
	kind   byte  // of the line that is being read; 0 between lines
	first  byte  // the kind of the whole value
	minus  bool  // the number in the line is negative: a null, whose length is -1
	number int64 // in the line, so far
	skip   int64 // bytes of a string and its end still to come
	left   int64 // values still to come, the present one included; 0 between two whole values
}

const (
	maxString = 1 << 30 // proto-max-bulk-len is 512 MB
	maxValues = 1 << 40
	lineEnd   = 2
)

// open reports whether a value has begun and not ended.
func (v *value) open() bool { return v.left > 0 }

// take takes bytes of the value, of one line or one string at most, and returns how many. It returns -1 if they are no
// value. The value is complete if it is not open then.
func (v *value) take(p []byte) (n int) {
	if v.skip > 0 {
		n = int(min(v.skip, int64(len(p))))
		if v.skip -= int64(n); v.skip == 0 {
			v.left--
		}
		return n
	}
	if v.kind == 0 {
		if !isText(p[0]) && bytes.IndexByte(lengths, p[0]) < 0 {
			return -1
		}
		v.kind, v.minus, v.number = p[0], false, 0
		if v.left == 0 {
			v.left, v.first = 1, p[0]
		}
		n = 1
	}
	for n < len(p) {
		b := p[n]
		n++
		if b == '\n' {
			if !v.line() {
				return -1
			}
			return n
		}
		if !isText(v.kind) && !v.digit(b) {
			return -1
		}
	}
	return n
}

// lengths are the kinds of lines that are the length of a value.
var lengths = []byte("$!=*~>%|")

// isText reports whether a line of a kind is a value, rather than the length of one.
func isText(kind byte) bool {
	switch kind {
	case '+', '-', ':', '_', ',', '#', '(':
		return true
	}
	return false
}

func (v *value) digit(b byte) bool {
	switch {
	case b == '-' && v.number == 0:
		v.minus = true
	case b >= '0' && b <= '9' && v.number < maxString:
		v.number = 10*v.number + int64(b-'0')
	case b != '\r':
		return false
	}
	return true
}

// line is the end of a line. It returns false if the line is no part of a value.
func (v *value) line() bool {
	kind := v.kind
	v.kind = 0
	if v.minus {
		v.number = 0
	}
	switch kind {
	case '$', '!', '=':
		if !v.minus {
			v.skip = v.number + lineEnd
			return v.number <= maxString
		}
		v.left--
	case '*', '~', '>':
		v.left += v.number - 1
	case '%':
		v.left += 2*v.number - 1
	case '|': // attributes, which precede the value
		v.left += 2 * v.number
	default:
		v.left--
	}
	return v.left < maxValues
}
