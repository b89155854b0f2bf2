//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/loadtest"
)

// callers are clients that send one request after another, each on a connection of its own, until an answer announces the
// end of the connection, or none comes.
type callers struct {
	all            sync.WaitGroup
	answered, lost atomic.Int64
}

// call starts callers of a pod, and returns when each has had an answer. Their requests do not begin together, and each
// begins some ticks of the kernel's clock after the last answer: of an answer and a request in one tick, the observer
// cannot know which was the last.
func (c *callers) call(n *namespace, p corev1.Pod, count int) {
	n.T.Helper()
	var first sync.WaitGroup
	for i := range count {
		conn, err := net.DialTimeout("tcp", net.JoinHostPort(p.Status.PodIP, "8080"), 5*time.Second)
		must.Do(n.T, err)
		first.Add(1)
		once := sync.OnceFunc(first.Done)
		c.all.Go(func() {
			defer once()
			defer func() { _ = conn.Close() }()
			time.Sleep(time.Duration(i) * 500 * time.Millisecond / time.Duration(count))
			for in := bufio.NewReader(conn); ; once() {
				_ = conn.SetDeadline(time.Now().Add(patience))
				_, _ = fmt.Fprint(conn, "GET /delay/0.5 HTTP/1.1\r\nHost: test\r\n\r\n")
				response, err := loadtest.Receive(in)
				if err != nil {
					c.lost.Add(1)
					return
				}
				if c.answered.Add(1); response.Close {
					return
				}
				if endsWithin(50*time.Millisecond, conn, in) {
					return
				}
			}
		})
	}
	first.Wait()
}

// TestObserveWorkload has lastcallctl observe a rollout under load, from ephemeral containers: it counts what the clients
// do.
func TestObserveWorkload(t *testing.T) {
	const replicas, clients = 2, 4 // of each pod
	for name, labels := range map[string]map[string]string{"bare": {}, "labelled": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNamespace(t, labels)
			n.start(app{name: "web", replicas: replicas})
			var c callers
			for _, p := range n.pods("web") {
				c.call(n, p, clients)
			}
			cmd := exec.Command(lastcallctl, "observe", "deploy/web", "--namespace", n.Name, "--restart", "--yes", "--json", "--timeout", "2m")
			var out, notes bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &notes
			err := cmd.Run()
			c.all.Wait()
			var reset, refused, most, ended int
			for _, one := range terminationsIn(out.Bytes()) {
				ended++
				reset += one.Traffic.Lost.Reset + one.Traffic.Lost.Unanswered
				refused += one.Traffic.Lost.Refused
				most += one.LostMost
				t.Logf("%s: %s, proxy %s, lost %q, %s", one.Pod, one.Verdict, one.Proxy, one.Traffic.Lost.Why(), one.Doubts())
			}
			lost, want := int(c.lost.Load()), map[string]int{"bare": 1, "labelled": 0}[name]
			t.Logf("clients lost %d, answered %d; the observers counted %d, refused %d, at most %d", lost, c.answered.Load(), reset, refused, most)
			if ended != replicas || reset > lost || most < lost {
				t.Errorf("%d terminations; the observers counted %d, the clients %d\n%s", ended, reset, lost, &notes)
			}
			if got := cmd.ProcessState.ExitCode(); got != want || (lost > 0) != (want > 0) {
				t.Errorf("exit code %d (%v), although %d were lost; want %d\n%s", got, err, lost, want, &notes)
			}
		})
	}
	// Ctrl-C names the pod in which a container remains, which ends by itself at its time limit.
	t.Run("interrupted", func(t *testing.T) {
		t.Parallel()
		n := newNamespace(t, map[string]string{})
		p := n.start(app{name: "web"})
		cmd := exec.Command(lastcallctl, "observe", "deploy/web", "--namespace", n.Name, "--timeout", "15s")
		stderr, err := cmd.StderrPipe()
		must.Do(t, err)
		must.Do(t, cmd.Start())
		var notes strings.Builder
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			notes.WriteString(lines.Text() + "\n")
			if strings.Contains(lines.Text(), ": observed") {
				_ = cmd.Process.Signal(syscall.SIGINT)
			}
		}
		_ = cmd.Wait()
		if !strings.Contains(notes.String(), "ephemeral containers remain in "+p.Name) || cmd.ProcessState.ExitCode() != 130 {
			t.Errorf("%v\n%s", cmd.ProcessState, notes.String())
		}
		n.Until("had the ephemeral container end", func() error {
			now, err := client.CoreV1().Pods(n.Name).Get(t.Context(), p.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			for _, s := range now.Status.EphemeralContainerStatuses {
				if s.State.Terminated == nil {
					return errors.New("it runs")
				}
			}
			if len(now.Status.EphemeralContainerStatuses) != 1 {
				return fmt.Errorf("it has %d", len(now.Status.EphemeralContainerStatuses))
			}
			return nil
		})
	})
}
