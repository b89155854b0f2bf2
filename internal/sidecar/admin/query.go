package admin

import (
	"net/url"
	"strings"
)

// query is the part of a URL after the question mark. Unlike url.Values it
// keeps a plus as it is, as Envoy does: a+ is a regular expression.
type query []parameter

type parameter struct{ name, value string }

func parseQuery(raw string) query {
	var q query
	for part := range strings.SplitSeq(raw, "&") {
		if part == "" {
			continue
		}
		name, value, _ := strings.Cut(part, "=")
		if _, seen := q.get(decode(name)); !seen { // the first one counts
			q = append(q, parameter{decode(name), decode(value)})
		}
	}
	return q
}

// decode resolves %-escapes; invalid ones stay.
func decode(s string) string {
	if plain, err := url.PathUnescape(s); err == nil {
		return plain
	}
	return s
}

func (q query) get(name string) (value string, ok bool) {
	for _, p := range q {
		if p.name == name {
			return p.value, true
		}
	}
	return "", false
}

// has is true for name, name= and name=anything, as Envoy's switches are.
func (q query) has(name string) bool {
	_, ok := q.get(name)
	return ok
}
