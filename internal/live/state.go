package live

import (
	"time"

	"github.com/lastcall-dev/lastcall/drain"
)

// Starting is the phase of an agent that does not serve yet.
const Starting = "starting"

// State is what an agent is doing at one moment. docs/live.md describes its JSON.
type State struct {
	At    time.Time `json:"at"`
	Host  string    `json:"host,omitempty"` // name of the machine, which in a pod is the pod's
	Phase string    `json:"phase"`          // Starting, or a drain.Phase
	Mode  string    `json:"mode"`           // a drain.Mode

	// Of a termination in progress.
	Drain *Drain `json:"drain,omitempty"`

	// Open connections of clients by protocol; nil when they are unknown.
	Connections []Connections `json:"connections"`

	// Busy conversations, the oldest first, at most MostHolding.
	Holding []drain.Conversation `json:"holding"`
}

// MostHolding limits the conversations of a State.
const MostHolding = 10

// Drain is the time of a termination.
type Drain struct {
	Took drain.Millis `json:"took_ms"`

	// Limit is the time until the remaining requests are ended: the last call, or the end of Istio's fixed drain. It
	// is negative after that moment, and missing in Istio's exit-on-zero mode.
	Limit *drain.Millis `json:"limit_ms,omitempty"`

	// Kill is the time until the platform's SIGKILL. It is negative after that moment.
	Kill drain.Millis `json:"kill_ms"`
}

// Connections are those of one protocol.
type Connections struct {
	Protocol string `json:"protocol,omitempty"` // as in /connections; empty: not known yet
	Busy     int    `json:"busy"`               // those that the exit waits for
	Idle     int    `json:"idle"`               // those that it does not wait for
}

// Total is the number of connections of all protocols.
func (s *State) Total() (busy, idle int) {
	for _, c := range s.Connections {
		busy += c.Busy
		idle += c.Idle
	}
	return busy, idle
}
