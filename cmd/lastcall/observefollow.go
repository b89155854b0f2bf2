package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/lastcall-dev/lastcall/internal/printable"
	"github.com/lastcall-dev/lastcall/internal/sidecar/observe"
	"github.com/lastcall-dev/lastcall/internal/sidecar/process"
	"github.com/lastcall-dev/lastcall/internal/sidecar/signals"
)

// observedApp is an app whose termination is followed. One of the first five fields names it.
type observedApp struct {
	PID       int      // a process and its descendants
	Unit      string   // the main process of a systemd unit
	Container string   // of any runtime: its ID, or 8 digits of it
	Pod       bool     // all in this network namespace; it ends when every socket has gone, after its SIGTERM
	Command   []string // is started, and receives the signals of this process

	Options   observe.Options // the ports, and what the spec of a pod shows
	Terminate bool            // send the app SIGTERM, which begins the termination at once
	Limit     time.Duration   // for the beginning; 0: none
	Early     time.Duration   // after it, a preliminary result is printed if requests are in flight; 0: never

	Out  io.Writer // of the results, and before of the ports that are watched
	JSON bool
}

// Errors of follow without a termination.
var (
	errInterrupted   = errors.New("interrupted before a termination")
	errNoTermination = errors.New("no termination")
)

const (
	followInterval = 50 * time.Millisecond // between looks for the end
	orphanTime     = 10 * time.Second      // for listeners of descendants after the exit of the process
)

// follow prints and returns what the termination has lost once the app has ended, or at a signal of this process after
// the beginning. The beginning is the SIGTERM that the app gets from this process, or a pod receives, otherwise the
// moment when the app closes a listener or exits.
func (a observedApp) follow(ctx context.Context) (t observe.Termination, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		child     *process.Child  // nil: the app was there before
		exited    <-chan struct{} // nil: a pod
		o         = a.Options
		namespace = ""
	)
	switch {
	case len(a.Command) > 0:
		c := exec.Command(a.Command[0], a.Command[1:]...)
		c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stderr, os.Stderr
		if child, err = process.Start(c); err != nil {
			return t, err
		}
		defer func() {
			child.Kill()
			<-child.Done()
		}()
		a.PID, exited = child.Pid(), child.Done()
		o.Process = a.PID
	case a.Pod:
		o.Local = func(netip.Addr) bool { return true } // which ones are the node's, a pod does not know
	default:
		if namespace, exited, err = a.find(ctx, &o); err != nil {
			return t, err
		}
	}
	o.LooksEarly = true
	w, err := observe.Open(namespace, o)
	if err != nil {
		return t, err
	}
	defer w.Close()
	received := make(chan os.Signal, 4)
	signal.Notify(received, syscall.SIGTERM, syscall.SIGINT) // before announce, after which one may come
	defer signal.Stop(received)
	if child == nil {
		if err := a.announce(w.Listening()); err != nil {
			return t, err
		}
	}
	if t, err = a.await(ctx, w, child, exited, received); err != nil {
		return t, err
	}
	return t, a.print(t)
}

// find finds a process that has a name, and sets the options that fit it.
func (a *observedApp) find(ctx context.Context, o *observe.Options) (
	namespace string, exited <-chan struct{}, err error) {
	switch {
	case a.Unit != "":
		a.PID, err = ofUnit(ctx, a.Unit)
	case a.Container != "":
		a.PID, err = ofContainer(a.Container)
	}
	if err != nil {
		return "", nil, err
	}
	if namespace, err = namespaceOf(a.PID); err != nil {
		return "", nil, err
	}
	if namespace == "" {
		o.Process = a.PID
	}
	exited, err = awaitProcess(ctx, a.PID)
	return namespace, exited, err
}

// await returns what the termination has lost.
func (a *observedApp) await(ctx context.Context, w *observe.Watch, child *process.Child, exited <-chan struct{},
	received <-chan os.Signal) (t observe.Termination, err error) {
	look := time.NewTicker(followInterval)
	defer look.Stop()
	limit, early, closing := after(a.Limit), (<-chan time.Time)(nil), w.Closing()
	if a.Pod {
		closing = nil // a pod may close one of its listeners and serve on
	}
	begun, ended := false, time.Time{}
	begin := func(by string) {
		if !begun {
			_ = w.Begin(time.Now(), by) // it has started
			begun, limit, early = true, nil, after(a.Early)
		}
	}
	if a.Terminate {
		begin("SIGTERM")
		if err := syscall.Kill(a.PID, syscall.SIGTERM); err != nil {
			return t, fmt.Errorf("send SIGTERM to process %d: %w", a.PID, err)
		}
	}
	for {
		select {
		case s := <-received:
			switch {
			case child != nil:
				begin(signals.Name(s.(syscall.Signal)))
				if err := child.Signal(s); err != nil {
					return t, fmt.Errorf("pass %v on to the app: %w", s, err)
				}
			case a.Pod && s == syscall.SIGTERM:
				begin("SIGTERM")
			case begun:
				return w.End(time.Now(), observe.Exit{}), nil
			default:
				return t, errInterrupted
			}
		case <-closing:
			begin("a closed listener")
			closing = nil
		case <-exited:
			begin("the exit of the process")
			exited, ended = nil, time.Now()
		case <-early:
			if t := w.Peek(); t.Unclear.Unfinished > 0 {
				if err := a.print(t); err != nil {
					return t, err
				}
			}
		case <-limit:
			return t, fmt.Errorf("%w in %v", errNoTermination, a.Limit)
		case <-ctx.Done():
			return t, ctx.Err()
		case <-look.C:
			switch {
			case a.Pod && begun && w.Gone():
				return w.End(time.Now(), observe.Exit{}), nil
			case !ended.IsZero() && (len(w.Listening()) == 0 || time.Since(ended) > orphanTime):
				var exit observe.Exit
				if child != nil { // only a parent knows
					exit = observe.Exit{Known: true, Code: child.Code()}
					exit.Killed = exit.Code == process.SignalCode(syscall.SIGKILL)
				}
				return w.End(ended, exit), nil
			}
		}
	}
}

// after is a timer's channel, or nil when d is not positive.
func after(d time.Duration) <-chan time.Time {
	if d <= 0 {
		return nil
	}
	return time.After(d)
}

// announce prints that the observation has begun.
func (a *observedApp) announce(ports []uint16) (err error) {
	if a.JSON {
		observing := map[string]any{"ports": append([]uint16{}, ports...)}
		return json.NewEncoder(printable.JSONWriter(a.Out)).Encode(map[string]any{"observing": observing})
	}
	_, err = fmt.Fprintf(a.Out, "observing ports %v\n", ports)
	return err
}

func (a *observedApp) print(t observe.Termination) (err error) {
	if a.JSON {
		return json.NewEncoder(printable.JSONWriter(a.Out)).Encode(t)
	}
	_, err = io.WriteString(a.Out, terminationText(t))
	return err
}
