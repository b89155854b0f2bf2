package peers

import (
	"fmt"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/lag"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

// slack is how much later than expected an event may come. On a busy machine the row's allowance is added.
const slack = 500 * time.Millisecond

// tooClose is how near a request's end may come to what cuts it, before
// either outcome is right.
const tooClose = 300 * time.Millisecond

// circumstances are what a statement follows from.
type circumstances struct {
	scene Scene
	left  time.Duration // of the request, at the pod's SIGTERM; 0 in an idle pod
	grace time.Duration
	app   strategy.SIGTERMBehaviour
}

// expectation is what should happen by a peer's own rules.
type expectation struct {
	lost bool          // the request
	cut  time.Duration // no later than this
	gone lag.Span      // the pod
	lag  time.Duration // at most, after the last byte and the minimum drain; 0: not judged
	late bool          // no request of the second after that is lost
}

// before limits all times to SIGKILL.
func (s expectation) before(grace time.Duration) expectation {
	s.gone, s.cut = s.gone.AtMost(grace), min(s.cut, grace)
	return s
}

func (s expectation) String() string {
	text := "the request is answered; pod gone " + s.gone.String()
	if s.lost {
		text = "the request is lost; pod gone " + s.gone.String()
	}
	if s.lag > 0 {
		text += fmt.Sprintf(", at most %v after the last byte", s.lag)
	}
	return text
}

// afterFixed is a pod that ends after a fixed time.
func afterFixed(d time.Duration) func(c circumstances) expectation {
	return func(c circumstances) expectation {
		s := waits(c, d, lag.At(d))
		if s.lost { // the app may continue a request whose client is gone
			s.gone.To = max(d, c.left)
		}
		return s.before(c.grace)
	}
}

// afterApp is a native sidecar that drains before the app exits and then exits at once, even with data in flight. An
// app that exits with its last response races it, so that result is measured, not expected. The kubelet here detects
// the app's exit within a millisecond; a real one's container runtime takes a few more, so the response wins more
// often there.
func afterApp(c circumstances) expectation {
	if c.app == strategy.Exits {
		return waits(c, 0, lag.At(0))
	}
	return waits(c, max(c.left, time.Nanosecond), lag.At(c.left)).before(c.grace)
}

// waits is a pod in which a request is cut no later than after some time.
func waits(c circumstances, cut time.Duration, gone lag.Span) expectation {
	return expectation{lost: c.left > min(cut, c.grace), cut: cut, gone: gone}
}
