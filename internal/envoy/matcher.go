package envoy

import (
	"regexp"
	"strings"
)

// StatsMatcher is envoy.config.metrics.v3.StatsMatcher, as its JSON stands in
// the configuration: which stats Envoy makes at all.
type StatsMatcher struct {
	RejectAll bool            `json:"reject_all"`
	Inclusion *stringMatchers `json:"inclusion_list"`
	Exclusion *stringMatchers `json:"exclusion_list"`
}

type stringMatchers struct {
	Patterns []stringMatcher `json:"patterns"`
}

// stringMatcher is envoy.type.matcher.v3.StringMatcher.
type stringMatcher struct {
	Exact     string `json:"exact"`
	Prefix    string `json:"prefix"`
	Suffix    string `json:"suffix"`
	Contains  string `json:"contains"`
	SafeRegex *struct {
		Regex string `json:"regex"`
	} `json:"safe_regex"`
	IgnoreCase bool `json:"ignore_case"`
}

// Shows says whether a stat of this name is made. What cannot be read is taken
// for hidden: the kernel's count carries the drain then.
func (m *StatsMatcher) Shows(name string) bool {
	switch {
	case m == nil:
		return true
	case m.RejectAll:
		return false
	case m.Inclusion != nil:
		return m.Inclusion.match(name)
	case m.Exclusion != nil:
		return !m.Exclusion.match(name)
	}
	return true
}

func (l *stringMatchers) match(name string) bool {
	for _, p := range l.Patterns {
		if p.match(name) {
			return true
		}
	}
	return false
}

func (p *stringMatcher) match(name string) bool {
	if p.SafeRegex != nil {
		// Envoy's regular expressions are RE2 and match the whole name.
		re, err := regexp.Compile(`^(?:` + p.SafeRegex.Regex + `)$`)
		return err == nil && re.MatchString(name)
	}
	fold := func(s string) string {
		if p.IgnoreCase {
			return strings.ToLower(s)
		}
		return s
	}
	name = fold(name)
	switch {
	case p.Exact != "":
		return name == fold(p.Exact)
	case p.Prefix != "":
		return strings.HasPrefix(name, fold(p.Prefix))
	case p.Suffix != "":
		return strings.HasSuffix(name, fold(p.Suffix))
	case p.Contains != "":
		return strings.Contains(name, fold(p.Contains))
	}
	return false
}
