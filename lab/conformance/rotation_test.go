package conformance

import (
	"bytes"
	"fmt"
	"net"
	"os/exec"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/certificate/certificatetest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/logs/logstest"
)

// instance is the server that ends in a rotation: a pod, or a server without one.
type instance struct {
	address string
	command *exec.Cmd
	stop    syscall.Signal
	kill    syscall.Signal // after killTime
	ended   <-chan struct{}
	check   func() error // once it has ended; nil: none
}

// killTime is the grace period of servers without a pod.
const killTime = 10 * time.Second

// rotation replaces one instance by the next one under clients that connect to its address.
type rotation struct {
	address string
	current atomic.Pointer[instance]
	start   func() *instance
	longest time.Duration // from an instance's signal to its end
}

func newRotation(t *testing.T, start func() *instance) *rotation {
	t.Helper()
	r := &rotation{start: start}
	r.current.Store(start())
	r.address = new(service).balance(t, func(*pod) string { return r.current.Load().address })
	return r
}

// run ends the instances one after another. done counts what the clients have done.
func (r *rotation) run(t *testing.T, times int, done *atomic.Int64) {
	t.Helper()
	for range times {
		before := done.Load()
		polltest.Eventually(t, "clients work", func() bool { return done.Load() > before+8 })
		old := r.current.Swap(r.start())
		began := time.Now()
		must.Do(t, old.command.Process.Signal(old.stop))
		select {
		case <-old.ended:
		case <-time.After(killTime):
			if old.kill != 0 {
				_ = old.command.Process.Signal(old.kill)
			}
			<-old.ended
		}
		r.longest = max(r.longest, time.Since(began))
		if old.check != nil {
			if err := old.check(); err != nil {
				t.Error(err)
			}
		}
	}
	before := done.Load()
	polltest.Eventually(t, "clients continue", func() bool { return done.Load() > before+8 })
}

// startInstance starts a server, which ends no later than the test.
func startInstance(t *testing.T, addr *net.TCPAddr, stop, kill syscall.Signal, command *exec.Cmd) *instance {
	t.Helper()
	output := new(logstest.Buffer)
	command.Stdout, command.Stderr = output, output
	must.Do(t, command.Start())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = command.Wait() }()
	t.Cleanup(func() {
		_ = command.Process.Signal(kill)
		<-ended
		if t.Failed() {
			t.Logf("output of %s:\n%s", command.Path, output)
		}
	})
	awaitListener(t, addr.String(), ended, output)
	return &instance{address: addr.String(), command: command, stop: stop, kill: kill, ended: ended}
}

// podsBefore starts pods in front of a server that stays.
func podsBefore(t *testing.T, server net.Addr) func() *instance {
	t.Helper()
	agent := buildAgent(t)
	secret, authority := certificatetest.NewSecret(t), certificatetest.New(t)
	secret.Write(authority.Sign("app.test", 0), authority.PEM())
	return func() *instance {
		p := startPod(t, agent, server, secret)
		return &instance{address: p.plain, command: p.command, stop: syscall.SIGTERM, ended: p.ended, check: func() error {
			r, err := p.report()
			if err == nil && (r.Verdict != "clean" || bytes.Contains(r.Phases, []byte("last call"))) {
				err = fmt.Errorf("the pod's end: %+v, phases %s", r, r.Phases)
			}
			return err
		}}
	}
}
