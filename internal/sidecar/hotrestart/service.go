package hotrestart

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lastcall-dev/lastcall/internal/poll"
)

// ServiceOptions configure a Service.
type ServiceOptions struct {
	Handover        *Handover       // nil: the process cannot be replaced
	Refused         error           // why it cannot be replaced; nil: it can
	Requests        <-chan struct{} // the signals for a hot restart
	RefusedBySignal error           // why a signal does not restart; nil: it does
	Notifier        *Notifier       // nil: no service manager
	Watchdog        time.Duration   // see WatchdogTime
	LastCall        time.Duration   // from a stop signal to the last call of a replaced process
	Log             *slog.Logger
}

// Service lets a new process replace an agent without losing a connection.
type Service struct {
	o   ServiceOptions
	log *slog.Logger

	mu       sync.Mutex    // one restart at a time
	handed   chan struct{} // closed when the successor serves
	pid      int           // the successor's; set before handed is closed
	noMore   atomic.Bool   // Stop was called
	passedOn atomic.Bool   // the successor was sent SIGTERM

	signals  atomic.Int32  // stop signals of this process
	stopped  chan struct{} // closed at the first one
	lastCall chan struct{} // a stop signal has come after handing over
}

// NewService returns a service that is not ready.
func NewService(o ServiceOptions) *Service {
	return &Service{o: o, log: o.Log, handed: make(chan struct{}), stopped: make(chan struct{}),
		lastCall: make(chan struct{}, 1)}
}

// Listen returns the predecessor's listener of this address, or a new one.
func (s *Service) Listen(network, address string) (net.Listener, error) {
	return s.o.Handover.Listen(network, address)
}

// TakeOver reserves the addresses, if this process replaces another. appWithin is then how long the app may take to
// accept connections; 0 if there is no predecessor.
func (s *Service) TakeOver(addresses []string) (appWithin time.Duration, err error) {
	if !s.o.Handover.Succeeds() {
		return 0, nil
	}
	for _, address := range addresses {
		if err := s.o.Handover.Reserve("tcp", address); err != nil {
			return 0, fmt.Errorf("listen on %s: %w", address, err)
		}
	}
	return s.o.Handover.timeout, nil
}

// Ready makes the predecessor drain: this process accepts connections.
func (s *Service) Ready() error {
	if err := s.o.Handover.Ready(); err != nil {
		return err
	}
	if s.o.Handover.Succeeds() {
		s.log.Info("hot restart: took over from the predecessor", "predecessor", os.Getppid())
	}
	return nil
}

// Serving notifies the service manager that the app serves. A predecessor has done so for its successor.
func (s *Service) Serving() {
	if !s.o.Handover.Succeeds() {
		s.notify(func(n *Notifier) error { return n.Ready("serving") })
	}
}

func (s *Service) notify(f func(*Notifier) error) {
	if err := f(s.o.Notifier); err != nil {
		s.log.Warn("cannot notify the service manager", "error", err)
	}
}

// Run serves requests for a hot restart, and the service manager's watchdog, until ctx ends. stop ends this process: it
// is called when it has a successor that has ended, or has to end with it.
func (s *Service) Run(ctx context.Context, alive func(context.Context) error, stop func()) {
	var all sync.WaitGroup
	defer all.Wait()
	if s.o.Handover.Succeeds() {
		all.Go(func() {
			if s.o.Handover.AwaitPredecessor(ctx) == nil {
				if err := s.o.Handover.writePID(os.Getpid()); err != nil {
					s.log.Warn("cannot write pid file", "error", err)
				}
			}
		})
	}
	all.Go(func() {
		s.o.Notifier.Watch(ctx, s.o.Watchdog, func(ctx context.Context) error {
			if s.IsHandedOver() {
				return nil
			}
			return alive(ctx)
		}, s.log)
	})
	all.Go(func() {
		select {
		case <-s.stopped: // the socket of the service manager may be full: the drain does not wait for this
			s.notify((*Notifier).Stopping)
		case <-ctx.Done():
		}
	})
	all.Go(func() { s.followSuccessor(ctx, stop) })
	for {
		select {
		case <-s.o.Requests:
			s.restartBySignal(ctx)
		case <-ctx.Done():
			return
		}
	}
}

func (s *Service) restartBySignal(ctx context.Context) {
	if s.IsHandedOver() && s.pid > 0 { // the pid file still names this process
		_ = syscall.Kill(s.pid, syscall.SIGUSR2)
		return
	}
	if err := cmp.Or(s.refusal(), s.o.RefusedBySignal); err != nil {
		s.log.Error("hot restart refused", "error", err)
		return
	}
	_, _ = s.restart(ctx) // it logs the outcome
}

// refusal is why there can be no hot restart; nil when there can.
func (s *Service) refusal() error {
	if s.o.Refused == nil && s.o.Handover == nil {
		return errors.New("this process cannot be replaced")
	}
	return s.o.Refused
}

// restart starts a successor and returns its process number when it serves. From then on this process drains.
func (s *Service) restart(ctx context.Context) (pid int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch err := s.refusal(); {
	case err != nil:
		return 0, err
	case s.IsHandedOver():
		return 0, fmt.Errorf("process %d has already taken over", s.pid)
	case s.noMore.Load():
		return 0, errors.New("this process is stopping: a hot restart is no longer possible")
	}
	s.log.Info("hot restart: starting the successor")
	s.notify((*Notifier).Reloading)
	began := time.Now()
	if pid, err = s.o.Handover.Restart(ctx); err != nil {
		s.log.Error("hot restart failed; this process continues to serve", "error", err)
		s.notify(func(n *Notifier) error { return n.Ready("serving; the latest hot restart failed") })
		return 0, err
	}
	s.log.Info("hot restart: the successor serves", "pid", pid, "after", time.Since(began).Round(time.Millisecond))
	s.notify(func(n *Notifier) error { return n.HandedOver(pid) })
	s.pid = pid
	close(s.handed)
	if s.noMore.Load() || s.signals.Load() > 0 { // a stop signal during the restart was meant for the whole service
		s.passOnce()
	}
	return pid, nil
}

// HandedOver is closed when a successor serves.
func (s *Service) HandedOver() <-chan struct{} { return s.handed }

// IsHandedOver reports whether a successor serves.
func (s *Service) IsHandedOver() bool {
	select {
	case <-s.handed:
		return true
	default:
		return false
	}
}

// Stop rules out a successor. It has to be called before listeners are closed to refuse connections: the copies that
// are kept for a successor would queue connections that no process accepts.
func (s *Service) Stop() {
	if h := s.o.Handover; h != nil {
		s.noMore.Store(true)
		h.Stop()
	}
}

// Signalled takes a stop signal. It returns true when the signal is not this process's own but the successor's: as
// long as this process drains it is the one that the service manager knows, and stands for both.
func (s *Service) Signalled() (passedOn bool) {
	first := s.signals.Add(1) == 1 // before IsHandedOver: restart looks in the opposite order, so that one of them passes it on
	if first {
		close(s.stopped)
	}
	switch {
	case !s.IsHandedOver():
		return false
	case first:
		s.passOnce()
		s.lastCall <- struct{}{}
		return true
	}
	if !s.passOnce() {
		s.terminateSuccessor()
	}
	return false
}

// passOnce sends the successor SIGTERM, unless it was sent before.
func (s *Service) passOnce() bool {
	if !s.passedOn.CompareAndSwap(false, true) {
		return false
	}
	s.terminateSuccessor()
	return true
}

func (s *Service) terminateSuccessor() {
	if s.pid > 0 {
		s.log.Info("sending SIGTERM to the successor", "pid", s.pid)
		_ = syscall.Kill(s.pid, syscall.SIGTERM)
	}
}

// successorPoll is how often the successor is checked: only tableflip would be notified of its end.
const successorPoll = 50 * time.Millisecond

// followSuccessor calls stop when the time after a stop signal for the whole service has passed, and when the successor
// has exited by itself.
func (s *Service) followSuccessor(ctx context.Context, stop func()) {
	select {
	case <-s.handed:
	case <-ctx.Done():
		return
	}
	var lastCall <-chan time.Time
	tick := time.NewTicker(successorPoll)
	defer tick.Stop()
	poll := tick.C
	for {
		select {
		case <-s.lastCall:
			lastCall = time.After(s.o.LastCall)
		case <-lastCall:
			stop()
		case <-poll:
			if s.pid > 0 && !IsAlive(s.pid) {
				poll = nil
				if !s.passedOn.Load() {
					s.log.Error("the successor has exited unexpectedly", "pid", s.pid)
					stop()
				}
			}
		case <-ctx.Done():
			return
		}
	}
}

// Leave is the last act of a process that has a successor. From then on the service manager knows the successor. One
// that was sent SIGTERM is waited for, until the deadline by: the service manager kills the rest of the service when
// the process that it knows exits.
func (s *Service) Leave(ctx context.Context, by time.Time) error {
	if s.passedOn.Load() {
		ctx, cancel := context.WithDeadline(ctx, by)
		defer cancel()
		_ = poll.Until(ctx, successorPoll, func() bool { return s.pid == 0 || !IsAlive(s.pid) })
		return nil
	}
	if s.pid > 0 && !IsAlive(s.pid) {
		return errors.New("the successor has exited")
	}
	if err := s.o.Handover.writePID(s.pid); err != nil {
		s.log.Warn("cannot write the successor's process number to the pid file", "error", err)
	}
	return nil
}

// Close removes the pid file, unless it names a successor.
func (s *Service) Close() {
	if err := s.o.Handover.RemovePIDFile(); err != nil {
		s.log.Warn("cannot remove the pid file", "error", err)
	}
}

// ServeHTTP is POST /hot-restart: it answers when the successor serves, or with the reason why there is none.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	pid, err := s.restart(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = fmt.Fprintf(w, "pid %d serves now\n", pid)
}
