package drain

import (
	"sync"
	"time"
)

// Signal begins a termination, hastens it or ends it.
type Signal int

const (
	// Terminate is SIGTERM. The first makes the end final; a second makes the last call at once.
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

	// HookAlone is an app's preStop hook without an agent: the app's SIGTERM follows the end of the termination.
	HookAlone

	// The program has decided to end: its context has ended, it has called its server's own Shutdown, one of its servers
	// has ended, its work in the background has failed. Each begins a termination that is final. A SIGTERM that follows is
	// the first one.
	ContextEnded
	ShutdownCalled
	ServerEnded
	BackgroundFailed
)

var signalNames = []string{"SIGTERM", "SIGINT", "hook", "app hook", "notice", "quitquitquit", "app exit", "/drain",
	"deadline", "hook", "context", "shutdown", "server ended", "background function failed"}

func (s Signal) String() string { return nameOf(s, "Signal", signalNames) }

// Requests are all that is requested of a termination. Send is the only reader of signals; a termination, and every
// other part of a program that acts on a signal, awaits what has been requested. The zero value has no request.
type Requests struct {
	mu      sync.Mutex
	now     Requested
	stopped time.Time     // the first Terminate or Interrupt
	changed chan struct{} // closed at the next request; nil while no caller waits
}

// Requested has the requests so far.
type Requested struct {
	Begun      bool      // a termination is to begin
	First      Signal    // what has begun it
	Container  bool      // the program's own container ends; false after an app's hook alone
	Terminated time.Time // when the end became final: SIGTERM, for example; zero before
	Again      time.Time // when the second stop signal came; zero before
	Noticed    time.Time // when Hurry came; zero before
	Exit       Verdict   // of the end at once that is requested: Quit or Exited; empty before
	Interrupts int       // since the start of the program

	deadlines int // how often SIGKILL has moved
}

// repeatTime is how long after the first stop signal another one is the same.
const repeatTime = time.Second

// Send records a signal. A Terminate or Interrupt within a second of the first one is the same: a supervisor signals a
// process and then its group, npm passes on what the terminal has sent to the whole group, and a program's context may
// end by a signal that arrives by itself, too. Send returns false for such a signal.
func (q *Requests) Send(s Signal) (isNew bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now, n := time.Now(), &q.now
	isFinal := false
	switch s {
	case Terminate, Interrupt:
		switch {
		case q.stopped.IsZero():
			q.stopped = now
		case now.Sub(q.stopped) < repeatTime:
			return false
		case n.Again.IsZero():
			n.Again = now
		}
		if s == Interrupt {
			n.Interrupts++
		}
		isFinal = true
	case HookAlone, ContextEnded, ShutdownCalled, ServerEnded, BackgroundFailed:
		isFinal = true
	case Hurry:
		if isFinal = true; n.Noticed.IsZero() {
			n.Noticed = now
		}
	case Hook, IstioDrain:
		n.Container = true
	case QuitNow:
		if n.Exit == "" {
			n.Exit = Quit
		}
	case AppEnded:
		n.Exit = Exited
	case Sooner:
		n.deadlines++
	}
	if isFinal && n.Terminated.IsZero() {
		n.Terminated, n.Container = now, true
	}
	if !n.Begun && s != Sooner {
		n.Begun, n.First = true, s
	}
	if q.changed != nil {
		close(q.changed)
		q.changed = nil
	}
	return true
}

// Look returns what has been requested, and a channel that the next request closes.
func (q *Requests) Look() (Requested, <-chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.changed == nil {
		q.changed = make(chan struct{})
	}
	return q.now, q.changed
}

// forget forgets the requests of a drain that was cancelled, and reports whether the end has become final before.
func (q *Requests) forget() (isFinal bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if isFinal = !q.now.Terminated.IsZero() || q.now.Exit != ""; !isFinal {
		q.now = Requested{}
	}
	return isFinal
}
