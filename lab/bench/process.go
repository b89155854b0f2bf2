package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/lastcall-dev/lastcall/internal/poll"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
)

const proxyCore, loadCore = 0, 1 // which the proxies, and the load and the app run on

// process is a proxy or the app while it runs, on one core. Of a subject that is nothing in between it has the app's
// port, and no command.
type process struct {
	place
	name    string
	port    int
	command *exec.Cmd
	began   time.Time       // when it was about to be started
	running context.Context // ends with the process
}

// readyTimeout is how long a program may take until it answers; Envoy takes the longest, about 0.3 s on an idle
// machine.
const readyTimeout = 15 * time.Second

// start runs the subject on the given core. The caller must stop it.
func start(ctx context.Context, s subject, core int, p place) (*process, error) {
	if s.command == nil {
		return &process{place: p, name: s.name, port: p.Backend, running: ctx}, nil
	}
	program, err := s.peer, error(nil)
	if !s.ours {
		program, err = peers.Find(s.peer)
	}
	if err == nil {
		p.Dir, err = os.MkdirTemp(p.Files, s.name)
	}
	if err == nil {
		err = freePorts(&p.Listen, &p.Admin, &p.Status)
	}
	if err != nil {
		return nil, err
	}
	words, err := s.command(program, p)
	if err != nil {
		return nil, err
	}
	// The wrappers of unpacked peers exec, so that the process id is the program's own.
	command := exec.CommandContext(ctx, words[0], words[1:]...)
	var stderr bytes.Buffer
	command.Dir, command.Env, command.Stderr = p.Dir, append(os.Environ(), "GOMAXPROCS=1"), &stderr
	began := time.Now()
	if err := onCore(core, command.Start); err != nil {
		return nil, fmt.Errorf("start %s: %w", s.name, err)
	}
	running, ended := context.WithCancelCause(context.WithoutCancel(ctx))
	go func() {
		ended(fmt.Errorf("it ended: %w\n%s", command.Wait(), &stderr))
	}()
	return &process{p, s.name, p.Listen, command, began, running}, nil
}

// stop kills the process and returns when it is gone.
func (p *process) stop() {
	if p.command != nil {
		_ = p.command.Process.Kill() // fails only when it is gone already
		<-p.running.Done()
	}
}

// address is where it listens.
func (p *process) address() string { return fmt.Sprintf("127.0.0.1:%d", p.port) }

// url is the URL of a path.
func (p *process) url(path string) string {
	scheme := "http"
	if p.TLS != "" {
		scheme = "https"
	}
	return scheme + "://" + p.address() + path
}

// idle returns once a GET is answered with 200, with what the process then uses.
func (p *process) idle() (usage, error) {
	ctx, cancel := context.WithTimeoutCause(p.running, readyTimeout, errors.New("no answer"))
	defer cancel()
	// Some of the listeners use only HTTP/2 if they are configured for HTTP/2 without TLS.
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!p.HTTP2)
	protocols.SetUnencryptedHTTP2(p.HTTP2)
	client := &http.Client{Timeout: readyTimeout, Transport: &http.Transport{
		DisableKeepAlives: true, Protocols: protocols,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // our own program with our own certificate
	var failed error
	err := poll.Until(ctx, 20*time.Millisecond, func() bool {
		var response *http.Response
		if response, failed = client.Get(p.url("/get")); failed == nil {
			response.Body.Close()
			if response.StatusCode != http.StatusOK {
				failed = errors.New(response.Status)
			}
		}
		return failed == nil
	})
	if err != nil {
		return usage{}, fmt.Errorf("start %s: %w", p.name, errors.Join(context.Cause(ctx), failed))
	}
	return p.usage()
}

// usage of a process: CPU in seconds so far, resident memory in bytes, files and sockets that are open.
type usage struct{ cpu, resident, open float64 }

// usage is zero without a process.
func (p *process) usage() (u usage, err error) {
	if p.command == nil {
		return u, nil
	}
	proc, err1 := procfs.NewProc(p.command.Process.Pid)
	stat, err2 := proc.Stat()
	status, err3 := proc.NewStatus()
	open, err4 := proc.FileDescriptorsLen()
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return u, fmt.Errorf("read usage of %s: %w", p.name, err)
	}
	return usage{cpu: stat.CPUTime(), resident: float64(status.VmRSS), open: float64(open)}, nil
}

// freePorts sets ports of 127.0.0.1 that are free at the moment.
func freePorts(ports ...*int) error {
	for _, port := range ports {
		listener, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			return fmt.Errorf("find a free port: %w", err)
		}
		defer listener.Close() // all stay open to the end, so that they differ
		*port = listener.Addr().(*net.TCPAddr).Port
	}
	return nil
}

// onCore runs f on a thread that is bound to the core. What f starts is bound to it from its first instruction on: an
// affinity is inherited by fork and kept by exec.
func onCore(core int, f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return fmt.Errorf("read the cores: %w", err)
	}
	one.Set(core)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return fmt.Errorf("bind to core %d, one for proxies, one for the load are needed: %w", core, err)
	}
	defer func() { _ = unix.SchedSetaffinity(0, &before) }()
	return f()
}

// bound is set in the environment of a bench that has bound itself.
const bound = "LASTCALL_BENCH_BOUND"

// bindSelf starts this program again on the core of the load: its own clients then leave the proxies' core alone, and
// its Go runtime counts one core.
func bindSelf() error {
	if os.Getenv(bound) != "" {
		return nil
	}
	return onCore(loadCore, func() error {
		err := syscall.Exec("/proc/self/exe", os.Args, append(os.Environ(), bound+"=1"))
		return fmt.Errorf("start again on core %d: %w", loadCore, err)
	})
}
