package rehearsal

import (
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/lag"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

// Expected is what the rehearsal's judge expects of a strategy. Times are from the scale-down.
type Expected struct {
	IsLost   bool
	Answered lag.Span // the end of the response, or of the lost request
	Gone     lag.Span // the pod
	IsKilled bool     // certainly by SIGKILL
}

// Expect is for other predictions of the same, which must agree with it: left is what the request needs at the scale-down,
// grace the pod's grace period if the strategy has none. The app is the built-in one, the sidecar lastcall's own proxy or
// its imitation of Istio's agent.
func Expect(s strategy.Strategy, left, grace time.Duration) Expected {
	e := expectOne(s, circumstances{left: left, grace: grace, app: s.App})
	return Expected{IsLost: e.lost, Answered: e.answered, Gone: e.gone, IsKilled: e.killed != nil && *e.killed}
}
