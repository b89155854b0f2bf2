package envoy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lastcall-dev/lastcall/internal/sidecar/process"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
)

// Options choose the Envoy, and how it is drained.
type Options struct {
	Admin  string // address of its admin API: host:port or unix:PATH
	Attach bool   // use a running Envoy; the fields up to Stdout and Stderr are unused then

	Path      string    // the program; looked up in PATH when it has no slash
	Config    string    // its configuration file; empty: made from Bootstrap
	Bootstrap Bootstrap // used without Config

	DrainTime      time.Duration // --drain-time-s
	ParentShutdown time.Duration // --parent-shutdown-time-s
	Concurrency    int           // --concurrency; 0: a worker for each core
	LogLevel       string        // -l; empty: warning
	Args           []string      // more arguments
	Stdout, Stderr io.Writer     // nil: the agent's

	StartTimeout time.Duration // until it serves; 0: a minute

	Hook      bool // for one drain: responses may cost Envoy more
	WatchOnly bool // another drains it: its listeners stay as they are

	FailHealthcheck bool     // also call /healthcheck/fail at the drain
	LeaveOut        []uint16 // ports of listeners that do not count, in addition to Infrastructure
	Istio           bool     // drain and count as pilot-agent does

	Log *slog.Logger

	blind bool // for tests: the kernel does not report destroyed sockets
}

// changes reports whether the listeners may differ from those at the start.
func (o *Options) changes() bool {
	return !o.Istio && !o.Hook && (o.Attach || o.Config != "" || len(o.Args) > 0)
}

// DefaultStartTimeout is how long an Envoy may take until it serves. With thousands of
// clusters it takes seconds.
const DefaultStartTimeout = time.Minute

// Start starts Envoy, or attaches to it, and returns when it serves.
func Start(ctx context.Context, o Options) (*Plane, error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(o.StartTimeout, DefaultStartTimeout))
	defer cancel()
	admin, err := NewAdmin(o.Admin)
	if err != nil {
		return nil, err
	}
	p := &Plane{o: o, admin: admin, log: o.Log, changes: make(chan struct{}, 1), answered: make(chan struct{}, 1),
		exited: make(chan struct{})}
	p.life, p.over = context.WithCancel(context.Background())
	if p.table, err = sockdiag.OpenTable(); err != nil {
		p.log.Warn("cannot read the kernel's socket table; using Envoy's own gauges", "error", err)
	}
	if !o.Attach {
		if err := o.adminIsFree(); err != nil {
			p.Shut()
			return nil, err
		}
		child, err := o.start()
		if err != nil {
			p.Shut()
			return nil, err
		}
		p.put(child)
	}
	if err := p.learn(ctx); err != nil {
		if c := p.running(); c != nil && c.HasExited() {
			err = fmt.Errorf("envoy exited with code %d before it was ready; its output is in the log above", c.Code())
		}
		p.Shut()
		return nil, err
	}
	return p, nil
}

// adminIsFree prevents the use of another program's Envoy instead of our own.
func (o *Options) adminIsFree() error {
	path, isUnix := strings.CutPrefix(o.Admin, "unix:")
	if isUnix {
		if conn, err := net.Dial("unix", path); err == nil {
			_ = conn.Close()
			return fmt.Errorf("envoy's admin address %s is taken; choose another by proxyAdminPort", o.Admin)
		}
		return nil
	}
	ln, err := net.Listen("tcp", o.Admin)
	if err != nil {
		return fmt.Errorf("envoy's admin address (choose another by proxyAdminPort): %w", err)
	}
	return ln.Close()
}

// learn waits until Envoy serves, and selects the listeners that count.
func (p *Plane) learn(ctx context.Context) error {
	if err := p.admin.awaitReady(ctx, p.log, p.exited); err != nil {
		return err
	}
	if err := p.layOut(ctx, true); err != nil {
		return err
	}
	l := p.laidOut()
	if len(l.ports)+len(l.unseen)+len(l.unknown) == 0 {
		p.log.Warn("Envoy has no listener that counts; a drain will not wait for any connection")
	}
	if len(l.hidden) > 0 {
		p.log.Warn("Envoy's stats matcher hides the gauges of requests in flight; treating every open connection as busy",
			"hidden", l.hidden[0], "of", len(l.hidden), "hint", "set "+matcherHint)
	}
	if len(l.unknown) > 0 {
		p.log.Warn("Envoy has a listener without visible connections; every drain will last until the deadline",
			"listener", l.unknown[0], "of", len(l.unknown), "hint", "set "+matcherHint+", or --ignore-port")
	}
	return nil
}

// layOut selects the listeners that count, as of now. Whether Envoy shows counters, which make a response expensive
// with thousands of clusters, is determined only with counters; later the result is kept for the same names.
func (p *Plane) layOut(ctx context.Context, counters bool) error {
	listeners, err := p.admin.Listeners(ctx)
	if err != nil {
		return err
	}
	body, err := p.admin.Stats(ctx, everyFilter, false, !counters)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		if p.ledger != nil || p.o.Hook { // a hook has another plane
			return err
		}
		p.log.Warn("Envoy's stats are unavailable; treating all of them as hidden", "error", err)
	}
	shown := ParseStats(body)
	if counters {
		p.shown = shown
	}
	for name := range p.shown {
		if strings.HasSuffix(name, "."+requestsTotal) || strings.HasSuffix(name, "."+connectionsTotal) {
			shown[name] = 0
		}
	}
	p.layout = layOut(listeners, shown, p.o.LeaveOut, p.table != nil)
	if p.ledger != nil {
		p.ledger.use(p.layout)
		return nil
	}
	if p.table != nil && len(p.layout.ports) > 0 {
		if open, err := p.sockets(sockdiag.Of(sockdiag.Listen)); err != nil || len(open) == 0 {
			p.log.Warn("the kernel's socket table does not show Envoy's listeners; using Envoy's own gauges", "error", err,
				"hint", "Envoy has to be in the same network namespace")
			_ = p.table.Close()
			p.table = nil
			p.layout = layOut(listeners, shown, p.o.LeaveOut, false)
		}
	}
	p.ledger = newLedger(p.layout)
	p.ledger.hook = p.o.Hook
	return nil
}

// start runs Envoy.
func (o *Options) start() (*process.Child, error) {
	path, err := exec.LookPath(o.Path)
	if err != nil {
		return nil, fmt.Errorf("find envoy (--envoy-path): %w", err)
	}
	config := o.Config
	var bootstrap *os.File
	if config == "" {
		if bootstrap, err = o.bootstrap(); err != nil {
			return nil, fmt.Errorf("write envoy's bootstrap: %w", err)
		}
		defer func() { _ = bootstrap.Close() }()
		config = "/dev/fd/3"
	}
	cmd := exec.Command(path, o.args(config)...)
	if bootstrap != nil {
		cmd.ExtraFiles = []*os.File{bootstrap}
	}
	cmd.Stdout, cmd.Stderr = cmp.Or(o.Stdout, io.Writer(os.Stdout)), cmp.Or(o.Stderr, io.Writer(os.Stderr))
	cmd.WaitDelay = time.Second // its children may keep its outputs open
	return process.Start(cmd)
}

// bootstrap writes our own configuration to a file in memory: there may be no writable folder, and nothing is left
// behind. In a pod it is visible at the admin API's /config_dump.
func (o *Options) bootstrap() (*os.File, error) {
	b, err := o.Bootstrap.Render(o.Admin)
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("envoy.json", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "envoy.json")
	if _, err = f.Write(b); err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// args are Istio's, of pkg/envoy/proxy.go.
func (o *Options) args(config string) []string {
	args := []string{
		"--config-path", config,
		"--drain-time-s", seconds(o.DrainTime),
		"--drain-strategy", "immediate",
		"--parent-shutdown-time-s", seconds(o.ParentShutdown),
		"--file-flush-interval-msec", "1000",
		"--disable-hot-restart",
		"--allow-unknown-static-fields",
		"-l", cmp.Or(o.LogLevel, "warning"),
	}
	if o.Concurrency > 0 {
		args = append(args, "--concurrency", strconv.Itoa(o.Concurrency))
	}
	return append(args, o.Args...)
}

func seconds(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }

// errCannotResume is Envoy's own limit.
var errCannotResume = errors.New("cannot undo the drain of an Envoy that lastcall has not started: it keeps sending Connection: close and does not listen again until it is restarted")

// replaceTime bounds how long busy connections are waited for before Envoy is replaced.
const replaceTime = time.Second

// Resume cancels the drain. Envoy itself cannot: it would send Connection: close on every response from now on, and not
// listen again. So another Envoy replaces it, when no connection is busy or after a second; connections in the tenth of
// a second between the two are refused.
func (p *Plane) Resume(ctx context.Context) error {
	p.end()
	old := p.running()
	if old == nil {
		if p.o.FailHealthcheck {
			if err := p.admin.HealthcheckFail(ctx, false); err != nil {
				return err
			}
		}
		return errCannotResume
	}
	for end := time.Now().Add(replaceTime); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
		if a, err := p.Activity(ctx); err == nil && a.Busy == 0 {
			break
		}
	}
	p.mu.Lock()
	p.child = nil // its exit is not the data plane's
	p.mu.Unlock()
	if err := p.send(ctx, old); err != nil {
		old.Kill()
		select {
		case <-old.Done():
		case <-ctx.Done():
			close(p.exited)
			return fmt.Errorf("replace envoy: the old one was killed and has not exited: %w", ctx.Err())
		}
	}
	child, err := p.o.start()
	if err != nil {
		close(p.exited)
		return err
	}
	p.put(child)
	if err := p.admin.awaitReady(ctx, p.log, child.Done()); err != nil {
		return fmt.Errorf("start envoy again: %w", err)
	}
	return p.layOut(ctx, true)
}
