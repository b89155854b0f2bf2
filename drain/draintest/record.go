package draintest

import (
	"errors"
	"slices"
	"time"
)

// ErrEnded is the error of a plane's methods after its end.
var ErrEnded = errors.New("the data plane has ended")

// Call is one call of a method.
type Call struct {
	Method   Method
	At       time.Duration // from New
	Took     time.Duration
	With     time.Duration // the argument of CloseIdle and LastCall
	Err      error
	UnderWay bool // it has not returned yet
}

// Way is how a request, or its connection, ended.
type Way string

const (
	Answered Way = "answered" // in full
	Refused  Way = "refused"  // its connection was not accepted
	Called   Way = "called"   // ended by LastCall
	Killed   Way = "killed"   // ended by Kill
	Died     Way = "died"     // ended by the plane's own death
)

// Ending is how one request (or one opaque connection) ended.
type Ending struct {
	Peer    string
	Request string
	At      time.Duration
	How     Way
}

// Calls returns the calls so far, in the order in which they began. Activity, which is called at every change, is left
// out unless it is named.
func (p *Plane) Calls(only ...Method) []Call {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []Call
	for _, c := range p.calls {
		if slices.Contains(only, c.Method) || len(only) == 0 && c.Method != Activity {
			out = append(out, c)
		}
	}
	return out
}

// Endings returns the requests that have ended so far, in that order.
func (p *Plane) Endings(only ...Way) []Ending {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.catchUp()
	var out []Ending
	for _, e := range p.endings {
		if slices.Contains(only, e.How) || len(only) == 0 {
			out = append(out, e)
		}
	}
	return out
}

// Overlaps lists the calls that began before another had returned: only one call at a time is allowed.
func (p *Plane) Overlaps() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.overlaps)
}
