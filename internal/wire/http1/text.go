package http1

import "bytes"

// tokenByte is the set tchar (RFC 9110, 5.6.2).
var tokenByte = func() (t [256]bool) {
	for _, c := range "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ" {
		t[c] = true
	}
	return t
}()

// IsToken reports whether b is a token (RFC 9110, 5.6.2).
func IsToken(b []byte) bool {
	for _, c := range b {
		if !tokenByte[c] {
			return false
		}
	}
	return len(b) > 0
}

// isLooseName reports whether clients may take b for the name of a field: white space within, as in "Cache Control",
// and all but control characters.
func isLooseName(b []byte) bool {
	for _, c := range b {
		if c < ' ' || c == 0x7f {
			return false
		}
	}
	return len(b) > 0 && len(Trim(b)) == len(b)
}

// EqualFold reports whether b equals lower, which must be in lower case, without regard to ASCII case.
func EqualFold(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// Trim returns b without leading OWS, and without trailing OWS and CR.
func Trim(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	for len(b) > 0 {
		switch b[len(b)-1] {
		case ' ', '\t', '\r':
			b = b[:len(b)-1]
			continue
		}
		break
	}
	return b
}

// MediaType returns the media type of a Content-Type value, without its parameters.
func MediaType(contentType []byte) []byte {
	media, _, _ := bytes.Cut(contentType, []byte(";"))
	return Trim(media)
}

// forEachElement calls f with each non-empty element of a comma-separated list (RFC 9110, 5.6.1).
func forEachElement(list []byte, f func([]byte)) {
	for len(list) > 0 {
		element := list
		if comma := bytes.IndexByte(list, ','); comma >= 0 {
			element, list = list[:comma], list[comma+1:]
		} else {
			list = nil
		}
		if element = Trim(element); len(element) > 0 {
			f(element)
		}
	}
}

// parseLength reads a Content-Length value (RFC 9110, 8.6: 1*DIGIT) that fits an int64.
func parseLength(b []byte) (n uint64, ok bool) {
	if len(b) == 0 || len(b) > 18 {
		return 0, false
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
	}
	return n, true
}

// ParseStatus returns the value of a status code, 0 if it is not a number of three digits.
func ParseStatus(b []byte) int {
	if n, ok := parseLength(b); ok && len(b) == 3 {
		return int(n)
	}
	return 0
}
