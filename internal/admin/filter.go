package admin

import (
	"errors"
	"regexp"
	"regexp/syntax"
)

// filter selects by name. The zero filter admits everything.
type filter struct {
	re     *regexp.Regexp // nil: all
	invert bool
}

func (f filter) admits(name string) bool {
	return f.re == nil || f.re.MatchString(name) != f.invert
}

// parseFilter parses filter and invert_filter. Go's expressions are RE2's, as in Envoy; the error has RE2's text.
func parseFilter(q query) (f filter, err error) {
	expression, _ := q.get("filter")
	if expression == "" {
		return filter{}, nil
	}
	re, err := regexp.Compile(expression)
	if err != nil {
		return filter{}, inRE2Words(err)
	}
	return filter{re, q.has("invert_filter")}, nil
}

// re2Words are RE2's texts for errors that Go words differently.
var re2Words = map[syntax.ErrorCode]string{
	syntax.ErrInvalidCharClass:      "invalid character class range",
	syntax.ErrInvalidNamedCapture:   "invalid named capture group",
	syntax.ErrInvalidPerlOp:         "invalid perl operator",
	syntax.ErrInvalidRepeatOp:       "bad repetition operator",
	syntax.ErrInvalidRepeatSize:     "invalid repetition size",
	syntax.ErrMissingBracket:        "missing ]",
	syntax.ErrMissingParen:          "missing )",
	syntax.ErrMissingRepeatArgument: "no argument for repetition operator",
	syntax.ErrTrailingBackslash:     "trailing \\",
	syntax.ErrUnexpectedParen:       "unexpected )",
}

func inRE2Words(err error) error {
	var at *syntax.Error
	if !errors.As(err, &at) {
		return err
	}
	words, found := re2Words[at.Code]
	if !found {
		words = at.Code.String()
	}
	if at.Code == syntax.ErrTrailingBackslash || at.Code == syntax.ErrInvalidUTF8 {
		return errors.New(words) // RE2 does not repeat these
	}
	return errors.New(words + ": " + at.Expr)
}
