package service

import (
	"fmt"
	"strings"
	"time"
)

// Span is a range of propagation delays: the fastest client learns of a change after From, the slowest after To.
type Span struct{ From, To time.Duration }

const maxPropagation = 5 * time.Minute

// ParseSpan parses "4s" (0s to 4s) or "1s..4s".
func ParseSpan(text string) (s Span, err error) {
	from, to, found := strings.Cut(text, "..")
	if !found {
		from, to = "0s", text
	}
	if s.From, err = time.ParseDuration(from); err == nil {
		s.To, err = time.ParseDuration(to)
	}
	if err != nil || s.From < 0 || s.To < s.From || s.To > maxPropagation {
		return Span{}, fmt.Errorf("propagation delay is %q: must be a duration or FROM..TO, as 0s..4s, at most %v",
			text, maxPropagation)
	}
	return s, nil
}

// String is the span as ParseSpan reads it.
func (s Span) String() string { return s.From.String() + ".." + s.To.String() }

// at is the delay of client i of n.
func (s Span) at(i, n int) time.Duration {
	if n < 2 {
		return s.To
	}
	return s.From + (s.To-s.From)*time.Duration(i)/time.Duration(n-1)
}
