package drain

import (
	"fmt"
	"time"
)

// Signal is what tells a termination to begin, to hurry or to stop.
type Signal int

const (
	// Terminate is SIGTERM. The first makes the end final; a second makes the last call at once.
	Terminate Signal = iota

	// Interrupt is SIGINT (Ctrl-C). It does what Terminate does.
	Interrupt

	// Hook is the sidecar's own preStop hook (or /drain): the sidecar's container ends. It begins a
	// drain that is cancelled when no Terminate follows within the grace period.
	Hook

	// AppHook is the preStop hook of an app container in a pod whose sidecar cannot tell the end of
	// the pod from a restart of that container: the kubelet runs preStop for both. It begins a drain
	// as Hook does, but the listeners stay open until Hook or Terminate announces the end of the pod.
	AppHook

	// Hurry is a notice that the deadline has moved up (a spot node, a node shutdown): the last call
	// is made at once.
	Hurry

	// QuitNow is /quitquitquit: end at once, without a drain.
	QuitNow

	// AppEnded means that the app has exited by itself: there is nothing left to serve.
	AppEnded

	// IstioDrain is /drain as pilot-agent handles it: the drain is never cancelled, and the SIGTERM
	// that follows ends the data plane at once. Only Istio's modes know it; in ExitOnZero it is a Hook.
	IstioDrain
)

func (s Signal) String() string {
	switch s {
	case Hook:
		return "hook"
	case Terminate:
		return "SIGTERM"
	case Hurry:
		return "notice"
	case QuitNow:
		return "quitquitquit"
	case IstioDrain:
		return "/drain"
	case AppHook:
		return "app hook"
	case Interrupt:
		return "SIGINT"
	case AppEnded:
		return "app exit"
	}
	return fmt.Sprintf("Signal(%d)", int(s))
}

// hear takes a signal in. It only notes: over says what follows from it.
func (r *run) hear(s Signal) {
	switch s {
	case QuitNow:
		if !r.quit {
			r.log.Info(lineHandlingQuit)
		}
		r.quit = true
	case Hook, IstioDrain:
		r.certain = true
	case AppEnded:
		r.quit, r.appEnded = true, true
	case Hurry:
		r.terminate()
		r.hurryUp()
	case Terminate, Interrupt:
		if r.terminating && r.cfg.Mode == ExitOnZero { // Istio's agent swallows the second
			r.log.Warn(lineSecondSignal)
			r.hurryUp()
		}
		r.terminate()
	}
}

// terminate makes the end final.
func (r *run) terminate() {
	if !r.terminating {
		if r.cfg.Mode != ExitOnZero {
			// pilot-agent's status server ends at SIGTERM. Ours goes on; the line is for queries.
			r.log.Info(lineStatusServer)
		}
		r.terminating, r.terminated, r.certain = true, time.Now(), true
	}
}

// hurryUp makes the last call the next thing to do, and moves the end of it up:
// whoever says so twice, or because the node goes, has no whole grace period.
func (r *run) hurryUp() {
	if !r.hurry {
		r.hurry, r.hurriedAt = true, time.Now()
	}
}

// told hears, without waiting, every signal that has come, so that none of them
// loses a race against the clock, and says what they come to.
func (r *run) told() (reason, bool) {
	for {
		select {
		case s := <-r.signals:
			r.hear(s)
			continue
		default:
		}
		return r.over()
	}
}

// over is what ends a wait or a call whatever it is for. Once the last call is
// under way, to hurry is nothing new.
func (r *run) over() (reason, bool) {
	switch {
	case r.hasExited():
		return exited, true
	case r.quit || r.ctx.Err() != nil:
		return told, true
	case r.hurry && !r.ending:
		return hurried, true
	}
	return 0, false
}

func (r *run) hasExited() bool {
	select {
	case <-r.dp.Exited():
		return true
	default:
		return false
	}
}
