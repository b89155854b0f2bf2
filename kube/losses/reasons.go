package losses

import (
	"fmt"
	"iter"
	"strings"

	"github.com/lastcall-dev/lastcall/internal/sidecar/observe"
)

// ReasonRestart is the metrics' reason of what a container lost that ended without its pod.
const ReasonRestart = "restart"

// Reasons yields every reason with its number of requests, 0 included.
func Reasons(l observe.Lost) iter.Seq2[observe.Reason, int] {
	return func(yield func(observe.Reason, int) bool) {
		_ = yield(observe.Reset, l.Reset) && yield(observe.Unanswered, l.Unanswered) && yield(observe.Refused, l.Refused) &&
			yield(observe.Cut, l.Cut)
	}
}

// Why lists the reasons that occurred: "3 reset, 1 refused"; empty without any.
func Why(l observe.Lost) string {
	var all []string
	for reason, n := range Reasons(l) {
		if n > 0 {
			all = append(all, fmt.Sprintf("%d %s", n, reason))
		}
	}
	return strings.Join(all, ", ")
}
