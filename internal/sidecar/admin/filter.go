package admin

import (
	"regexp"
)

// filter selects by name. The zero filter admits everything.
type filter struct {
	re     *regexp.Regexp // nil: all
	invert bool
}

func (f filter) admits(name string) bool {
	return f.re == nil || f.re.MatchString(name) != f.invert
}

// parseFilter parses filter and invert_filter. Go's expressions are RE2's, as in Envoy; the error has Go's text.
func parseFilter(q query) (f filter, err error) {
	expression, _ := q.get("filter")
	if expression == "" {
		return filter{}, nil
	}
	re, err := regexp.Compile(expression)
	if err != nil {
		return filter{}, err
	}
	return filter{re, q.has("invert_filter")}, nil
}
