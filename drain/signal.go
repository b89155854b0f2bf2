package drain

import "time"

// Signal begins a termination, hastens it or ends it.
type Signal int

const (
	// Terminate is SIGTERM. The first makes the end final; a second makes the last call at once. A receiver of the
	// operating system's signals leaves out Repeats.
	Terminate Signal = iota

	// Interrupt is SIGINT (Ctrl-C). It has the effect of Terminate.
	Interrupt

	// Hook is the sidecar's own preStop hook (or /drain): the sidecar's container ends. It begins a
	// drain that is cancelled when no Terminate has followed 5 s after the grace period.
	Hook

	// AppHook is the preStop hook of an app container in a pod whose sidecar cannot distinguish the
	// end of the pod from a restart of that container: the kubelet runs preStop for both. It begins a drain
	// as Hook does, but the listeners stay open until Hook or Terminate announces the end of the pod.
	AppHook

	// Hurry is a notice that the deadline has moved up (a spot node, a node shutdown): the last call is made at once.
	Hurry

	// QuitNow is /quitquitquit: end at once, without a drain.
	QuitNow

	// AppEnded means that the app has exited by itself: there is nothing left to serve.
	AppEnded

	// IstioDrain is /drain as pilot-agent handles it: the drain is never cancelled, and the SIGTERM
	// that follows ends the data plane at once. Only Istio's modes know it; in ExitOnZero it is a Hook.
	IstioDrain

	// Sooner means that SIGKILL comes sooner than the grace period says: Run asks Termination.Deadline for the moment.
	// It begins no termination. Istio's modes have no deadline and ignore it.
	Sooner
)

var signalNames = []string{"SIGTERM", "SIGINT", "hook", "app hook", "notice", "quitquitquit", "app exit", "/drain",
	"deadline"}

func (s Signal) String() string { return nameOf(s, "Signal", signalNames) }

// Repeats finds the stop signals that are one with the first: a supervisor signals a process and then its group, npm
// passes on what the terminal has sent to the whole group. The zero value has seen none. It is for one goroutine.
type Repeats struct{ first time.Time }

// repeatTime is how long after the first stop signal another one is the same.
const repeatTime = time.Second

// Is reports whether a stop signal that arrives now repeats the first one.
func (r *Repeats) Is() bool {
	if r.first.IsZero() {
		r.first = time.Now()
		return false
	}
	return time.Since(r.first) < repeatTime
}

// receive records a signal. interruption decides what follows from it.
func (r *run) receive(s Signal) {
	switch s {
	case QuitNow:
		if r.stopped == "" {
			r.istio.Info(lineHandlingQuit)
			r.stopped = Quit
		}
	case Hook, IstioDrain:
		r.containerEnds = true
	case AppEnded:
		r.stopped = Exited
	case Sooner:
		r.shorten()
	case Hurry:
		r.terminate()
		r.hurryUp()
	case Terminate, Interrupt:
		if r.terminating() && r.cfg.Mode == ExitOnZero { // Istio's agent ignores the second
			r.log.Warn(lineSecondSignal)
			r.hurryUp()
		}
		r.terminate()
	}
}

// terminate makes the end final.
func (r *run) terminate() {
	if !r.terminating() {
		if r.cfg.Mode != ExitOnZero {
			// pilot-agent's status server ends at SIGTERM. Ours does not; the line is for log queries.
			r.istio.Info(lineStatusServer)
		}
		r.terminatedAt, r.containerEnds = time.Now(), true
	}
}

// hurryUp makes the last call the next step, with an earlier end: a second signal, or a node that shuts down, leaves no
// whole grace period.
func (r *run) hurryUp() {
	if !r.hurried() {
		r.hurriedAt = time.Now()
	}
}

// interrupted receives all pending signals without waiting, so that none loses a race against the clock, and returns
// what follows from them.
func (r *run) interrupted() (reason, bool) {
	for {
		select {
		case s := <-r.signals:
			r.receive(s)
			continue
		default:
		}
		return r.interruption()
	}
}

// interruption returns the reason to end every wait and every call. During the last call a hurry changes nothing.
func (r *run) interruption() (reason, bool) {
	switch {
	case hasExited(r.dp):
		return exited, true
	case r.stopped != "" || r.ctx.Err() != nil:
		return stopNow, true
	case r.hurried() && !r.ending:
		return lastCallNow, true
	}
	return 0, false
}

func hasExited(p DataPlane) bool {
	select {
	case <-p.Exited():
		return true
	default:
		return false
	}
}
