package envoy

import (
	"context"
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

	"github.com/lastcall-dev/lastcall/internal/process"
	"github.com/lastcall-dev/lastcall/internal/sockdiag"
)

// Options say which Envoy, and how it is ended.
type Options struct {
	// Admin is the address of its admin API: host:port or unix:PATH.
	Admin string

	// Attach takes an Envoy that others have started; what follows up to
	// Stdout and Stderr are not used then.
	Attach bool

	Path      string    // of the program; looked up in PATH when it has no slash
	Config    string    // its configuration file; empty: Bootstrap is written and used
	Bootstrap Bootstrap // of our own making

	DrainTime      time.Duration // --drain-time-s
	ParentShutdown time.Duration // --parent-shutdown-time-s
	Concurrency    int           // --concurrency; 0: a worker for each core
	LogLevel       string        // -l; empty: warning
	Args           []string      // more of them
	Stdout, Stderr io.Writer     // its outputs; nil: ours

	FailHealthcheck bool     // also call /healthcheck/fail at the drain
	LeaveOut        []uint16 // ports of listeners that do not count, beside Infrastructure
	Istio           bool     // drain and count as pilot-agent does

	Log *slog.Logger

	blind bool // for tests: the kernel does not tell of the end of sockets
}

// changes says whether the listeners may become others than at the start.
func (o *Options) changes() bool { return !o.Istio && (o.Attach || o.Config != "" || len(o.Args) > 0) }

// startTime is how long an Envoy may take until it serves. With thousands of
// clusters it takes seconds.
const startTime = 60 * time.Second

// Start starts Envoy, or attaches to it, and returns when it serves.
func Start(ctx context.Context, o Options) (*Plane, error) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	admin, err := NewAdmin(o.Admin)
	if err != nil {
		return nil, err
	}
	p := &Plane{o: o, admin: admin, log: o.Log, changes: make(chan struct{}, 1), answered: make(chan struct{}, 1), exited: make(chan struct{})}
	p.life, p.over = context.WithCancel(context.Background())
	if p.table, err = sockdiag.OpenTable(); err != nil {
		p.log.Warn("the kernel's socket table cannot be had: Envoy's own numbers must do", "error", err)
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
		if c := p.running(); c != nil {
			select {
			case <-c.Done():
				err = fmt.Errorf("envoy has ended with code %d before it was ready; what it said stands above", c.Code())
			default:
			}
		}
		p.Shut()
		return nil, err
	}
	return p, nil
}

// adminIsFree keeps us from taking another's Envoy for our own.
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

// learn waits until Envoy serves and finds out what counts.
func (p *Plane) learn(ctx context.Context) error {
	if err := p.admin.awaitReady(ctx, p.exited); err != nil {
		return err
	}
	if err := p.layOut(ctx, true); err != nil {
		return err
	}
	l := p.laidOut()
	if len(l.ports)+len(l.unseen)+len(l.unknown) == 0 {
		p.log.Warn("Envoy has no listener that counts: nothing will be waited for")
	}
	if len(l.hidden) > 0 {
		p.log.Warn("Envoy's stats matcher hides what tells busy from idle: every open connection will count as busy",
			"hidden", l.hidden[0], "of", len(l.hidden), "hint", "set "+matcherHint)
	}
	if len(l.unknown) > 0 {
		p.log.Warn("Envoy has a listener of which nothing can be known: every drain will last until the deadline",
			"listener", l.unknown[0], "of", len(l.unknown), "hint", "set "+matcherHint+", or --ignore-port")
	}
	return nil
}

// layOut finds out what counts, as things are now. Whether Envoy shows counters, which
// make the answer costly where there are thousands of clusters, is asked only with
// counters; later it holds for the same names.
func (p *Plane) layOut(ctx context.Context, counters bool) error {
	listeners, err := p.admin.Listeners(ctx)
	if err != nil {
		return err
	}
	body, err := p.admin.Stats(ctx, everyFilter, false, !counters)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		if p.ledger != nil {
			return err
		}
		p.log.Warn("Envoy's stats cannot be had: all is taken for hidden", "error", err)
	}
	shown := ParseStats(body)
	if counters {
		p.shown = shown
	}
	for name := range p.shown {
		if isCounter(name) {
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
			p.log.Warn("the kernel's socket table does not show Envoy's listeners: Envoy's own numbers must do", "error", err,
				"hint", "Envoy has to be in the same network namespace")
			_ = p.table.Close()
			p.table = nil
			p.layout = layOut(listeners, shown, p.o.LeaveOut, false)
		}
	}
	p.ledger = newLedger(p.layout)
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
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if o.Stdout != nil {
		cmd.Stdout = o.Stdout
	}
	if o.Stderr != nil {
		cmd.Stderr = o.Stderr
	}
	cmd.WaitDelay = time.Second // what it has started may keep its outputs open
	return process.Start(cmd)
}

// bootstrap is a configuration of our own making. It is a file in memory: there may
// be no folder that can be written to, and nothing is left behind. Who looks into
// a pod finds it at the admin API's /config_dump.
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
	level := o.LogLevel
	if level == "" {
		level = "warning"
	}
	args := []string{
		"--config-path", config,
		"--drain-time-s", seconds(o.DrainTime),
		"--drain-strategy", "immediate",
		"--parent-shutdown-time-s", seconds(o.ParentShutdown),
		"--file-flush-interval-msec", "1000",
		"--disable-hot-restart",
		"--allow-unknown-static-fields",
		"-l", level,
	}
	if o.Concurrency > 0 {
		args = append(args, "--concurrency", strconv.Itoa(o.Concurrency))
	}
	return append(args, o.Args...)
}

func seconds(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }
