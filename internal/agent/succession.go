package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/hotrestart"
	"github.com/lastcall-dev/lastcall/internal/process"
	"github.com/lastcall-dev/lastcall/internal/tcp"
)

// Succession is how an agent around an app is followed by another one without a
// gap (a hot restart), and what systemd is told of it.
type Succession struct {
	Handover *hotrestart.Handover // nil: there can be no successor
	Refused  error                // why there can be none, if so

	// RefusedBySignal is why a signal does not restart, if so.
	RefusedBySignal error

	// Asked brings each wish for a hot restart; see RestartSignals.
	Asked <-chan os.Signal

	Systemd  *hotrestart.Notifier // nil: nobody is told
	Watchdog time.Duration        // within which it is told again and again; 0: never
}

// succession is the state of it.
type succession struct {
	mu       sync.Mutex    // one restart at a time
	handed   chan struct{} // closed when the successor serves
	pid      int           // the successor's; set before handed is closed
	stopping atomic.Bool   // there will be no successor any more
	passedOn atomic.Bool   // the successor was told to stop
}

// triggerSuccessor is the report's trigger after a hot restart.
const triggerSuccessor = "hot restart"

func (s *Succession) listen(network, address string) (net.Listener, error) {
	if s.Handover == nil {
		return tcp.Listen(network, address)
	}
	return s.Handover.Listen(network, address)
}

func (s *Succession) succeeds() bool { return s.Handover != nil && s.Handover.Succeeds() }

// listenAddress is the status server's.
func (a *agent) listenAddress() string {
	return net.JoinHostPort(a.StatusAddress, strconv.Itoa(a.Settings.StatusPort.Value))
}

// startAsSuccessor starts in an order that loses nothing: the predecessor serves
// until all that can fail has not, and from the first accepted connection on this
// process answers as well as that.
func (a *agent) startAsSuccessor(ctx context.Context) (err error) {
	h := a.Succession.Handover
	addresses := []string{a.listenAddress()}
	for _, in := range a.Inbound {
		addresses = append(addresses, in.Listen)
	}
	if a.Admin.Address != "" && !a.Admin.Optional {
		addresses = append(addresses, a.Admin.Address)
	}
	for _, address := range addresses {
		if err := h.Reserve("tcp", address); err != nil {
			return fmt.Errorf("listen on %s: %w", address, err)
		}
	}
	if err := a.startApp(); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			a.killApp()
		}
	}()
	if err := a.awaitApp(ctx, h.Patience()); err != nil {
		return err
	}
	if err := a.startPlane(ctx); err != nil {
		return err
	}
	a.way.ready()
	if a.status, err = a.startStatus(); err == nil {
		err = a.startAdmin()
	}
	if err == nil {
		err = h.Ready()
	}
	if err != nil {
		a.stopAdmin()
		if a.status != nil {
			a.status.close()
		}
		a.plane.Kill()
		return err
	}
	a.log.Info("taken over from the process before", "predecessor", os.Getppid())
	return nil
}

func (a *agent) startApp() (err error) {
	if a.app, err = process.Start(a.App); err != nil {
		return err
	}
	a.log.Info("app started", "pid", a.app.Pid(), "command", a.App.String())
	return nil
}

// killApp ends an app that nobody has talked to yet.
func (a *agent) killApp() {
	a.app.Kill()
	<-a.app.Done()
}

// appAddresses are where connections to the app go.
func (a *agent) appAddresses() []string {
	var out []string
	for _, in := range a.Inbound {
		if in.App != "" {
			out = append(out, in.App)
		}
	}
	return out
}

// awaitApp waits until the app accepts connections on all of its addresses.
func (a *agent) awaitApp(ctx context.Context, atMost time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	for _, address := range a.appAddresses() {
		if err := a.awaitAppOn(ctx, address, atMost); err != nil {
			return err
		}
	}
	return nil
}

func (a *agent) awaitAppOn(ctx context.Context, address string, atMost time.Duration) error {
	var dialer net.Dialer
	tick := time.NewTicker(appLook)
	defer tick.Stop()
	for {
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-a.app.Done():
			return fmt.Errorf("wait for the app to accept connections on %s: it has ended with code %d", address, a.app.Code())
		case <-ctx.Done():
			return fmt.Errorf("wait for the app to accept connections on %s: not within %v: %w", address, atMost, err)
		case <-tick.C:
		}
	}
}

// appLook is how often awaitApp tries: the kernel tells nobody of a new listener.
const appLook = 10 * time.Millisecond

// restartHot starts a successor and returns its process number when it serves.
// From then on this agent drains.
func (a *agent) restartHot(ctx context.Context) (pid int, err error) {
	s := &a.succession
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !a.Succession.isPossible():
		return 0, a.Succession.refusal()
	case a.isHandedOver():
		return 0, hotrestart.HandedOverError{Successor: s.pid}
	case s.stopping.Load():
		return 0, errors.New("this process drains, or has: it is not followed by a successor any more")
	}
	a.log.Info("hot restart: starting a successor")
	a.tellSystemd((*hotrestart.Notifier).Reloading)
	began := time.Now()
	if pid, err = a.Succession.Handover.Restart(ctx); err != nil {
		a.log.Error("hot restart: there is no successor; serving on", "error", err)
		a.tellSystemd(func(n *hotrestart.Notifier) error { return n.Ready("serving; the latest hot restart failed") })
		return 0, err
	}
	a.log.Info("hot restart: the successor serves", "pid", pid, "after", time.Since(began).Round(time.Millisecond))
	a.tellSystemd(func(n *hotrestart.Notifier) error { return n.HandedOver(pid) })
	s.pid = pid
	close(s.handed)
	if s.stopping.Load() { // who told us to stop meanwhile meant the service
		a.passOn()
	}
	return pid, nil
}

func (s *Succession) isPossible() bool { return s.Handover != nil && s.Refused == nil }

func (s *Succession) refusal() error {
	if s.Refused != nil {
		return s.Refused
	}
	return errors.New("there is nothing to restart hot: that is for lastcall run")
}

func (a *agent) tellSystemd(f func(*hotrestart.Notifier) error) {
	if err := f(a.Succession.Systemd); err != nil {
		a.log.Warn("the service manager was not told", "error", err)
	}
}

// attend serves the wishes for hot restarts, and systemd, until ctx ends.
func (a *agent) attend(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	if h := a.Succession.Handover; a.Succession.succeeds() {
		all.Go(func() {
			if h.AwaitPredecessor(ctx) == nil {
				if err := h.ClaimPIDFile(); err != nil {
					a.log.Warn("the process number is not told", "error", err)
				}
			}
		})
	}
	if h := a.Succession.Handover; h != nil && h.Control() != nil {
		all.Go(func() { a.serveControl(ctx, h.Control()) })
	}
	if a.Succession.Systemd != nil {
		all.Go(func() { a.Succession.Systemd.Watch(ctx, a.Succession.Watchdog, a.alive, a.log) })
	}
	if !a.Succession.succeeds() { // otherwise the predecessor has announced it
		all.Go(func() { a.becomeReady(ctx) })
	}
	for {
		select {
		case sig := <-a.Succession.Asked:
			a.log.Info("told to restart hot", "by", sig.String())
			if a.isHandedOver() && a.succession.pid > 0 { // the pid file still names us
				_ = syscall.Kill(a.succession.pid, syscall.SIGUSR2)
				continue
			}
			switch {
			case !a.Succession.isPossible():
				a.log.Error("hot restart: refused; serving on", "error", a.Succession.refusal())
				continue
			case a.Succession.RefusedBySignal != nil:
				a.log.Error("hot restart: refused; serving on", "error", a.Succession.RefusedBySignal)
				continue
			}
			_, _ = a.restartHot(ctx) // it has logged how it went
		case <-ctx.Done():
			return
		}
	}
}

// becomeReady ends the start: the app accepts connections, if it is ours.
func (a *agent) becomeReady(ctx context.Context) {
	if a.app != nil && a.awaitApp(ctx, forEver) != nil {
		return
	}
	a.way.appAccepts()
	a.tellSystemd(func(n *hotrestart.Notifier) error { return n.Ready("serving") })
}

// forEver is longer than any service manager's patience for a start.
const forEver = 24 * time.Hour

// alive says whether the data plane and the status port answer.
func (a *agent) alive(ctx context.Context) error {
	if a.isHandedOver() {
		return nil
	}
	switch activity, err := a.plane.Activity(ctx); {
	case err != nil:
		return fmt.Errorf("ask the data plane what it does: %w", err)
	case !activity.Known:
		return errors.New("the data plane does not know what it does")
	}
	return a.status.alive(ctx)
}

// aliveTransport finds the status port of every pod.
var aliveTransport = &http.Transport{DialContext: tcp.DialLoopback, DisableKeepAlives: true}

// alive asks the status port as anybody would.
func (s *status) alive(ctx context.Context) error {
	_, port, err := net.SplitHostPort(s.address.String())
	if err != nil {
		return err
	}
	host := s.a.StatusAddress
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, port)+"/healthz/ready", nil)
	if err != nil {
		return err
	}
	req.Close = true
	resp, err := aliveTransport.RoundTrip(req)
	if err != nil {
		return fmt.Errorf("ask the status server: %w", err)
	}
	return resp.Body.Close() // 503 is an answer, too: the app may take its time to start
}

func (a *agent) isHandedOver() bool {
	select {
	case <-a.succession.handed:
		return true
	default:
		return false
	}
}

// endSuccession rules a successor out, because a termination has begun or the
// listeners are to refuse: the copies of the sockets that are kept for one would
// hold new connections that nobody accepts.
func (a *agent) endSuccession() {
	if h := a.Succession.Handover; h != nil {
		a.succession.stopping.Store(true)
		h.Stop()
	}
}

// leave is the way out after a hot restart: the successor has the sockets, and
// what is left here is drained by the same rules, within parentShutdownDuration.
func (a *agent) leave(ctx context.Context) drain.Report {
	grace := a.gracePeriod()
	leaving, cancel := context.WithCancel(ctx)
	var gone sync.WaitGroup
	gone.Go(func() { _ = a.status.server.Shutdown(leaving) }) // who asks again asks the successor
	defer gone.Wait()
	defer cancel()
	a.stopAdmin()
	_ = a.plane.StopAccepting(ctx)

	cfg := a.Settings.Drain()
	cfg.GracePeriod = grace
	report := a.terminate(ctx, cfg, drain.Terminate)
	report.Trigger = triggerSuccessor
	return report
}

// passOn tells the successor to stop: as long as this process drains it is the one
// that the service manager knows, and stands for both.
func (a *agent) passOn() {
	s := &a.succession
	s.passedOn.Store(true)
	if s.pid > 0 {
		a.log.Info("telling the successor to stop", "pid", s.pid)
		_ = syscall.Kill(s.pid, terminate)
	}
}

// hearSuccessor is hear after a hot restart, until ctx ends. What is left here has
// the grace period of the service when that is told to stop, and no time at all
// when there is no successor any more.
func (a *agent) hearSuccessor(ctx context.Context) {
	grace := time.NewTimer(0)
	if !grace.Stop() {
		<-grace.C
	}
	defer grace.Stop()
	tick := time.NewTicker(successorLook)
	defer tick.Stop()
	look := tick.C
	for {
		select {
		case s := <-a.Signals:
			a.log.Info("told to stop", "by", a.Stop.name(s))
			if a.succession.passedOn.Load() {
				a.tell(ctx, s) // again: last call
			} else {
				grace.Reset(a.Settings.GracePeriod.Value - min(a.Settings.Margin.Value, a.Settings.GracePeriod.Value/4))
			}
			a.passOn()
		case <-grace.C:
			a.tell(ctx, drain.Terminate)
		case <-look:
			if a.succession.pid > 0 && !hotrestart.IsAlive(a.succession.pid) {
				look = nil
				if !a.succession.passedOn.Load() {
					a.log.Error("the successor has ended by itself", "pid", a.succession.pid)
					a.tell(ctx, drain.Terminate)
				}
			}
		case <-ctx.Done():
			return
		}
	}
}

// successorLook is how often the successor is looked after: its death would be told
// to tableflip alone.
const successorLook = 50 * time.Millisecond

// bequeath ends a process that has a successor: the service manager knows the
// latter from then on. It returns the exit code.
func (a *agent) bequeath(ctx context.Context, by time.Time) int {
	pid := a.succession.pid
	if a.succession.passedOn.Load() {
		a.awaitSuccessor(ctx, pid, by)
		return CodeIntended
	}
	if pid > 0 && !hotrestart.IsAlive(pid) {
		return CodeCrashed
	}
	if err := a.Succession.Handover.Bequeath(pid); err != nil {
		a.log.Warn("the successor's process number is not told", "error", err)
	}
	return CodeIntended
}

// awaitSuccessor stays until the successor has ended, too: the service manager ends
// by force what is left when the process that it knows has ended.
func (a *agent) awaitSuccessor(ctx context.Context, pid int, by time.Time) {
	ctx, cancel := context.WithDeadline(ctx, by)
	defer cancel()
	tick := time.NewTicker(successorLook)
	defer tick.Stop()
	for pid > 0 && hotrestart.IsAlive(pid) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// hotRestart is POST /hot-restart: answered when the successor serves, or with the
// reason why there is none.
func (s *status) hotRestart(w http.ResponseWriter, r *http.Request) {
	pid, err := s.a.restartHot(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	answer(w, fmt.Sprintf("pid %d serves now\n", pid))
}

// serveControl answers lastcall hot-restart --pid-file until ctx ends.
func (a *agent) serveControl(ctx context.Context, ln net.Listener) {
	server := &http.Server{
		Handler:           hotrestart.ControlHandler(a.restartHot),
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          slog.NewLogLogger(a.log.Handler(), slog.LevelDebug),
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		<-ctx.Done()
		end(server)
	}()
	if err := server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		a.log.Error("hot-restart --pid-file is no longer answered", "error", err)
	}
	<-ended
}

// removePIDFile is the process's last act, unless the file names a successor by now.
func (a *agent) removePIDFile() {
	if h := a.Succession.Handover; h != nil {
		if err := h.RemovePIDFile(); err != nil {
			a.log.Warn("cannot remove the pid file", "error", err)
		}
	}
}

// gracePeriod is what the end of this process has.
func (a *agent) gracePeriod() time.Duration {
	if a.isHandedOver() {
		return a.Settings.ParentShutdown.Value
	}
	return a.Settings.GracePeriod.Value
}
