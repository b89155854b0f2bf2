//go:build e2e

package gateways

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/poll"
	"github.com/lastcall-dev/lastcall/internal/sidecar/loadtest"
)

// ended is how one pod ended while it served a request.
type ended struct {
	status string        // of the request
	envoy  time.Duration // from the last byte of the response to the exit of Envoy
	pod    time.Duration // … to the pod's removal from the API
	report string        // lastcall's
}

// ending deletes pods, each with a request in flight and, with idle, another client's idle connection. It returns how they
// ended. The requests are longer than all minimum drains, and of different lengths, since others poll.
func (g *gateway) ending(t *testing.T, idle bool) []ended {
	t.Helper()
	pods := g.scale(t, *samples)
	out := make([]ended, len(pods))
	var all sync.WaitGroup
	for i, p := range pods {
		envoy := envoyOf(t, p.Name)
		defer func() { _ = unix.Close(envoy) }()
		if idle {
			kept := loadtest.Keep(t, g.address(&p), patience)
			kept.Ask("/get")
			kept.Answer(t)
		}
		seconds := 12 + 5*float64(i)/float64(len(pods)) // Contour polls every 5 s
		begun := make(chan struct{})
		all.Go(func() {
			exit := make(chan time.Time, 1)
			all.Go(func() { exit <- exited(envoy) })
			out[i].status = slow(g.address(&p), seconds, begun)
			last := time.Now() // of a request that was cut as well
			at, report := gone(t.Context(), p)
			out[i].pod, out[i].report = at.Sub(last), report
			out[i].envoy = (<-exit).Sub(last)
		})
		<-begun
	}
	for _, p := range pods {
		if err := client.CoreV1().Pods(g.Name).Delete(t.Context(), p.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
	g.Kubectl("scale", "deployment", g.deployment, "--replicas", "1") // so that few start meanwhile
	all.Wait()
	answered := 0
	for _, e := range out {
		if e.status == "HTTP/1.1 200 OK" {
			answered++
		}
	}
	t.Logf("%s, idle client %v: %d of %d requests were answered; Envoy has exited %v (median of %d; most %v) after the last byte, the pod is gone after %v", g.form, idle, answered, len(out),
		median(out, func(e ended) time.Duration { return e.envoy }), len(out), slices.MaxFunc(out, func(a, b ended) int { return int(a.envoy - b.envoy) }).envoy.Round(time.Millisecond),
		median(out, func(e ended) time.Duration { return e.pod }))
	return out
}

func median(list []ended, of func(ended) time.Duration) time.Duration {
	var all []time.Duration
	for _, e := range list {
		all = append(all, of(e))
	}
	slices.Sort(all)
	return all[len(all)/2].Round(time.Millisecond)
}

// slow sends a request that takes some seconds, and closes begun when the gateway has it.
func slow(address string, seconds float64, begun chan<- struct{}) string {
	connection, err := net.Dial("tcp", address)
	if err != nil {
		close(begun)
		return err.Error()
	}
	defer func() { _ = connection.Close() }()
	_ = connection.SetDeadline(time.Now().Add(patience))
	_, err = fmt.Fprintf(connection, "GET /delay/%.2f HTTP/1.1\r\nHost: web\r\nConnection: close\r\n\r\n", seconds)
	close(begun)
	if err != nil {
		return err.Error()
	}
	response, err := io.ReadAll(connection)
	line, _, _ := strings.Cut(string(response), "\r\n")
	if err != nil {
		return line + " " + err.Error()
	}
	return line
}

// envoyOf returns a handle of a pod's Envoy, a process of this machine with the pod's name in its environment.
func envoyOf(t *testing.T, pod string) int {
	t.Helper()
	processes, err := filepath.Glob("/proc/[0-9]*/comm")
	must.Do(t, err)
	for _, file := range processes {
		name, _ := os.ReadFile(file)
		environment, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "environ"))
		var pid int
		if strings.TrimSpace(string(name)) != "envoy" || !strings.Contains(string(environment)+"\x00", "HOSTNAME="+pod+"\x00") {
			continue
		}
		if _, err := fmt.Sscanf(file, "/proc/%d/comm", &pid); err != nil {
			t.Fatal(err)
		}
		handle, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			t.Fatalf("process %d of %s: %v", pid, pod, err)
		}
		return handle
	}
	t.Fatalf("no Envoy has the pod %s in its environment", pod)
	return -1
}

// exited returns when a process has ended.
func exited(process int) time.Time {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(process), Events: unix.POLLIN}}, int(10*patience/time.Millisecond))
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return time.Time{}
		}
		return time.Now()
	}
}

// gone returns when the pod has left the API, and the last termination message of its Envoy: lastcall's report.
func gone(ctx context.Context, p corev1.Pod) (at time.Time, report string) {
	_ = poll.Until(ctx, 20*time.Millisecond, func() bool {
		now, err := client.CoreV1().Pods(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{})
		if err != nil || now.UID != p.UID {
			return err == nil || apierrors.IsNotFound(err)
		}
		for _, c := range now.Status.ContainerStatuses {
			if c.State.Terminated != nil && c.State.Terminated.Message != "" {
				report = c.State.Terminated.Message
			}
		}
		return false
	})
	return time.Now(), report
}
