package advise

import (
	"fmt"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/course"
)

// Evidence is what was observed of a service.
type Evidence struct {
	// Source is what it was read from, in words: "40 terminations of deployment/web".
	Source string

	// Tails is how long requests take: each request of a rehearsal, or for each termination the time from its last new
	// connection until no request was in flight. The latter is a lower bound of its longest request.
	Tails Durations

	// Propagation is how late clients still connected to a terminating pod; 0: none did.
	Propagation time.Duration

	// App is what the app did at its stop signal; empty: unknown.
	App course.Reaction

	// Doubts are why the true values may be larger, one sentence each.
	Doubts []string
}

func (e *Evidence) doubt(format string, args ...any) {
	e.Doubts = append(e.Doubts, fmt.Sprintf(format, args...))
}

// maxInput bounds a file of evidence, bytes.
const maxInput = 256 << 20

// seen collects terminations.
type seen struct {
	tails       []time.Duration
	propagation time.Duration
	unclear     int // that lost requests, were killed, or were not observed completely
}

// add adds a termination: when its last new connection came, and for how long after that requests were in flight.
func (s *seen) add(lateness, tail time.Duration, isClear bool) {
	s.tails = append(s.tails, max(0, tail))
	s.propagation = max(s.propagation, lateness)
	if !isClear {
		s.unclear++
	}
}

// evidence is that of terminations of a workload.
func (s *seen) evidence(what string) (*Evidence, error) {
	if len(s.tails) == 0 {
		return nil, fmt.Errorf("there is no termination of %s", what)
	}
	e := &Evidence{Source: fmt.Sprintf("%d terminations of %s", len(s.tails), what), Tails: Observed(s.tails), Propagation: s.propagation}
	e.judge(s.unclear)
	return e, nil
}

func (e *Evidence) judge(unclear int) {
	if unclear > 0 {
		e.doubt("%d terminations lost requests, ended by SIGKILL or were not observed completely: their requests may take longer than was observed", unclear)
	}
	if e.Propagation == 0 {
		e.doubt("no termination had a new connection after its beginning")
	}
}

// confidence is that of advice from the evidence.
func (e *Evidence) confidence() string {
	n := e.Tails.Count()
	text := fmt.Sprintf("%s: with 95 %% confidence at most %s of later ones need longer (rule of three)", e.Source, percent(min(1, 3/float64(n))))
	level := "high: "
	switch {
	case n < 30:
		level = "low: "
	case n < 300 || len(e.Doubts) > 0:
		level = "medium: "
	}
	return strings.Join(append([]string{level + text}, e.Doubts...), "; ")
}
