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
	"syscall"
	"time"

	"github.com/prometheus/procfs"

	"github.com/lastcall-dev/lastcall/internal/poll"
)

// process is a proxy or the app while it runs, on one core.
type process struct {
	name   string
	port   int
	pid    int
	http2  bool // all that it speaks
	tls    bool
	stderr *bytes.Buffer // to be read only once done is closed
	began  time.Time     // when it was about to be started
	done   chan struct{}
	signal func(os.Signal) error
}

// readyTimeout is how long a program may take until it answers; Envoy takes the longest, about 0.3 s on an idle
// machine.
const readyTimeout = 15 * time.Second

// start runs the subject on the given core and returns once a request has come through it. With a subject that is
// nothing in between, the process has pid 0 and the app's port. The caller must stop it.
func start(ctx context.Context, s subject, program string, core int, p place) (*process, error) {
	running, err := launch(ctx, s, program, core, p)
	if err != nil || running.pid == 0 {
		return running, err
	}
	if err := running.awaitAnswer(ctx); err != nil {
		running.stop()
		return nil, fmt.Errorf("start %s: %w\n%s", s.name, err, running.stderr)
	}
	return running, nil
}

// launch is start without waiting for anything.
func launch(ctx context.Context, s subject, program string, core int, p place) (*process, error) {
	if s.command == nil {
		return &process{name: s.name, port: p.Backend, http2: p.HTTP2}, nil
	}
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	p.Listen, p.Admin, p.Status = ports[0], ports[1], ports[2]
	p.Clients = max(p.Clients, fewestClients)
	words, err := s.command(program, p)
	if err != nil {
		return nil, err
	}
	// The wrappers of unpacked peers exec, so that the process id is the program's own.
	command := exec.CommandContext(ctx, words[0], words[1:]...)
	command.Dir = p.Dir
	command.Env = append(os.Environ(), "GOMAXPROCS=1", "MINIMUM_DRAIN_DURATION=0s")
	var stderr bytes.Buffer
	command.Stderr = &stderr
	began := time.Now()
	if err := onCore(core, command.Start); err != nil {
		return nil, fmt.Errorf("start %s: %w", s.name, err)
	}
	running := &process{
		name: s.name, port: p.Listen, pid: command.Process.Pid, http2: p.HTTP2, tls: p.TLS != "", stderr: &stderr,
		began: began, done: make(chan struct{}), signal: command.Process.Signal}
	go func() {
		defer close(running.done)
		_ = command.Wait() // its exit code does not matter: it was stopped
	}()
	return running, nil
}

// address is where it listens.
func (p *process) address() string { return fmt.Sprintf("127.0.0.1:%d", p.port) }

// url is the URL of a path.
func (p *process) url(path string) string {
	if p.tls {
		return "https://" + p.address() + path
	}
	return "http://" + p.address() + path
}

// awaitAnswer returns once a GET is answered with 200.
func (p *process) awaitAnswer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	// Some of the listeners use only HTTP/2 if they are configured for HTTP/2 without TLS.
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!p.http2)
	protocols.SetUnencryptedHTTP2(p.http2)
	transport := &http.Transport{DisableKeepAlives: true, Protocols: protocols,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} // our own program with our own certificate
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url("/get"), nil)
	if err != nil {
		return err
	}
	var failed error
	err = poll.Until(ctx, 20*time.Millisecond, func() bool {
		var response *http.Response
		if response, failed = client.Do(request); failed == nil {
			response.Body.Close()
			if response.StatusCode != http.StatusOK {
				failed = errors.New(response.Status)
			}
		}
		return failed == nil || p.hasEnded()
	})
	switch {
	case err != nil:
		return fmt.Errorf("no answer: %w", errors.Join(failed, err))
	case failed != nil:
		return errors.New("it ended at once")
	}
	return nil
}

func (p *process) hasEnded() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// stop ends the process and returns when it is gone. A second SIGTERM makes lastcall leave without a drain.
func (p *process) stop() {
	if p.pid == 0 {
		return
	}
	for _, step := range []struct {
		signal os.Signal
		wait   time.Duration
	}{{syscall.SIGTERM, 200 * time.Millisecond}, {syscall.SIGTERM, 3 * time.Second}, {syscall.SIGKILL, time.Minute}} {
		_ = p.signal(step.signal) // fails only when it is gone already
		select {
		case <-p.done:
			return
		case <-time.After(step.wait):
		}
	}
}

// cpu is the processor time that the process has used so far.
func (p *process) cpu() (used time.Duration, err error) {
	err = p.look("processor time", func(proc procfs.Proc) error {
		stat, err := proc.Stat()
		used = time.Duration(stat.CPUTime() * float64(time.Second))
		return err
	})
	return used, err
}

// resident is the resident memory of the process in bytes.
func (p *process) resident() (bytes int, err error) {
	err = p.look("memory", func(proc procfs.Proc) error {
		status, err := proc.NewStatus()
		bytes = int(status.VmRSS)
		return err
	})
	return bytes, err
}

// descriptors is how many files and sockets the process has open.
func (p *process) descriptors() (open int, err error) {
	err = p.look("descriptors", func(proc procfs.Proc) (err error) {
		open, err = proc.FileDescriptorsLen()
		return err
	})
	return open, err
}

// look calls read with the process, unless there is none.
func (p *process) look(what string, read func(procfs.Proc) error) error {
	if p.pid == 0 {
		return nil
	}
	proc, err := procfs.NewProc(p.pid)
	if err == nil {
		err = read(proc)
	}
	if err != nil {
		return fmt.Errorf("read %s of %s: %w", what, p.name, err)
	}
	return nil
}

// freePorts returns n ports of 127.0.0.1 that are free at the moment.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		listener, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer listener.Close() // all stay open to the end, so that they differ
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
