package admin

import (
	"net/url"
	"strings"
)

// query is the part of a URL after the question mark. Unlike url.Values it keeps a plus unchanged, as Envoy does: a+ is
// a regular expression.
type query string

// get returns the first value of a parameter.
func (q query) get(name string) (value string, ok bool) {
	for part := range strings.SplitSeq(string(q), "&") {
		n, value, _ := strings.Cut(part, "=")
		if decode(n) == name {
			return decode(value), true
		}
	}
	return "", false
}

// has is true for name, name= and name=anything, as Envoy's switches are.
func (q query) has(name string) bool {
	_, ok := q.get(name)
	return ok
}

// decode resolves %-escapes; invalid ones stay.
func decode(s string) string {
	if plain, err := url.PathUnescape(s); err == nil {
		return plain
	}
	return s
}
