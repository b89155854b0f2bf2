package observe

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
	"github.com/lastcall-dev/lastcall/kube/advice"
)

// These tests use the real kernel: each pod has a network namespace, with an app that has not read one client's request.

// dialer connects from where the clients are.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// app is that of a pod. Its end loses one request.
func (n *node) app(home *nettest.Namespace, dial dialer) (end func()) {
	n.t.Helper()
	ln := home.Listen(n.t, "tcp", home.TCP4(8080))
	client, err := dial(n.t.Context(), "tcp", ln.Addr().String())
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = client.Close() })
	server, err := ln.Accept()
	if err != nil {
		n.t.Fatal(err)
	}
	if _, err := io.WriteString(client, "request"); err != nil {
		n.t.Fatal(err)
	}
	return sync.OnceFunc(func() { _, _ = ln.Close(), server.Close() })
}

// alone is a pod with an app and a process in a network namespace without a wire.
func (n *node) alone(pod *corev1.Pod) (end func()) {
	n.t.Helper()
	home := nettest.Alone(n.t)
	app := n.app(home, func(ctx context.Context, network, address string) (net.Conn, error) {
		return home.DialFrom(ctx, nettest.Neighbour, network, address)
	})
	process := n.process(pod, "app", home.Path())
	return func() { app(); process() }
}

// onKernel is a node with the real kernel.
func onKernel(t *testing.T) *node {
	n := newNode(t)
	n.kernel.real = OpenNamespace(t.Context(), n.proc)
	return n
}

// known wants a report that has the lost request, or is unknown, and returns whether it has it.
func known(t *testing.T, r Termination) bool {
	t.Helper()
	switch {
	case r.Verdict == advice.Lost && r.Traffic.Lost.Total() == 1:
		return true
	case r.Verdict == advice.Unknown:
	default:
		t.Errorf("%s: %s %q, %+v", r.Pod, r.Verdict, r.Unknown, r.Traffic)
	}
	return false
}

// TestAllAtOnce: a node loses all its pods in one moment, half of them before the news.
func TestAllAtOnce(t *testing.T) {
	const pods = 500
	n := onKernel(t)
	var ends []func()
	for i := range pods {
		pod := running(i)
		ends = append(ends, n.alone(pod))
		n.list = append(n.list, *pod)
	}
	stop := n.run()
	n.watched(pods)
	var last []*corev1.Pod
	for i := range pods {
		last = append(last, deleted(&n.list[i], 30))
	}
	for _, pod := range last[:pods/2] {
		n.changes.Modify(pod)
	}
	for _, end := range ends {
		end()
	}
	for _, pod := range last[pods/2:] {
		n.changes.Modify(pod)
	}
	for _, pod := range last {
		n.changes.Delete(exited(pod, 1))
	}
	lost := make(map[string]bool)
	count := func(r Termination) {
		if known(t, r) {
			if lost[r.Pod] {
				t.Errorf("%s: its lost request is counted twice", r.Pod)
			}
			lost[r.Pod] = true
		}
	}
	for ended := 0; ended < pods; {
		r := n.next()
		count(r)
		if !r.Restart { // else the news came too late on this machine: its container ended, and then the pod
			ended++
		}
	}
	for stop(); len(n.reports) > 0; { // of such containers, too
		if r := n.next(); r.Restart {
			count(r)
		} else {
			t.Errorf("also reported: %+v", r)
		}
	}
	seen := len(lost)
	t.Logf("%d of %d lost requests were counted; the other pods are unknown", seen, pods)
	if seen < pods/2 {
		t.Errorf("only %d of %d lost requests were counted", seen, pods)
	}
}

// TestShortLife: a pod whose termination takes 10 ms, right after its start.
func TestShortLife(t *testing.T) {
	n := onKernel(t)
	stop := n.run()
	for i := range 10 {
		pod := running(i)
		last := deleted(pod, 30)
		end := n.alone(pod)
		n.changes.Add(pod)
		n.changes.Modify(last)
		time.Sleep(10 * time.Millisecond) // its life
		end()
		n.changes.Modify(exited(last, 1))
		n.changes.Delete(exited(last, 1))
	}
	for range 10 {
		known(t, n.next())
	}
	stop()
	n.none()
}

// TestNewsInOne: the deletion and the exit are news of the same moment, as after an interruption.
func TestNewsInOne(t *testing.T) {
	n := onKernel(t)
	pod := running(1)
	end := n.alone(pod)
	n.list = []corev1.Pod{*pod}
	stop := n.run()
	n.watched(1)
	last := deleted(pod, 30)
	end()
	n.changes.Modify(exited(last, 1))
	if !known(t, n.next()) {
		t.Error("the lost request was not counted")
	}
	n.changes.Delete(exited(last, 1))
	stop()
	n.none()
}

// TestNamespaceGone: nothing but the observer holds the network namespace any longer.
func TestNamespaceGone(t *testing.T) {
	t.Parallel()
	for name, isNotified := range map[string]bool{"the news come then": true, "no news come": false} {
		t.Run(name, func(t *testing.T) {
			n, wire := onKernel(t), nettest.New(t)
			pod := running(1)
			app, process := n.app(wire.Pod, wire.Client.Dial), n.process(pod, "app", wire.Pod.Path())
			n.list = []corev1.Pod{*pod}
			stop := n.run()
			n.watched(1)
			last := deleted(pod, 30)
			app()
			process()
			wire.Pod.Close()
			if isNotified {
				n.changes.Modify(last)
				n.changes.Delete(exited(last, 1))
				if !known(t, n.next()) {
					t.Error("the lost request was not counted")
				}
			} else if r := n.next(); !r.Restart || !known(t, r) {
				t.Errorf("not reported as the end of a container: %+v", r)
			}
			hasWire := func() bool {
				return wire.Client.Do(func() error { _, err := net.InterfaceByName(nettest.Interface); return err }) == nil
			}
			polltest.Eventually(t, "the observer leaves the namespace", func() bool { return !hasWire() })
			stop()
			n.none()
		})
	}
}

// containerd is one of the test's own.
type containerd struct {
	t         *testing.T
	folder    string
	namespace string // of runc's state, which is the machine's
	daemon    *exec.Cmd
}

func newContainerd(t *testing.T) *containerd {
	for _, program := range []string{"containerd", "ctr", "runc"} {
		if _, err := exec.LookPath(program); err != nil {
			if peers.InCI() {
				t.Fatal(err)
			}
			t.Skipf("%v: it comes with the package containerd", err)
		}
	}
	c := &containerd{t: t, folder: t.TempDir(), namespace: fmt.Sprint("lastcall-", os.Getpid())}
	config := fmt.Sprintf("version = 2\nroot = %q\nstate = %q\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n[grpc]\naddress = %q\n",
		c.folder+"/root", c.folder+"/state", c.socket())
	if err := os.WriteFile(c.folder+"/config.toml", []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	c.start()
	t.Cleanup(c.stop)
	return c
}

func (c *containerd) socket() string { return c.folder + "/socket" }

func (c *containerd) start() {
	c.t.Helper()
	c.daemon = exec.Command("containerd", "--config", c.folder+"/config.toml", "--log-level", "error")
	if err := c.daemon.Start(); err != nil {
		c.t.Fatal(err)
	}
	polltest.NoError(c.t, func() error {
		_, err := c.ctr("version")
		return err
	})
}

func (c *containerd) stop() {
	_ = c.daemon.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(patience, func() { _ = c.daemon.Process.Kill() })
	defer kill.Stop()
	_ = c.daemon.Wait()
}

func (c *containerd) ctr(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, "ctr", append([]string{"--address", c.socket(), "--namespace", c.namespace}, args...)...).CombinedOutput()
	return string(out), err
}

// run starts a container that sleeps, in a network namespace, and returns its end.
func (c *containerd) run(id string, home *nettest.Namespace) (end func()) {
	c.t.Helper()
	root := filepath.Join(c.folder, id)
	for _, folder := range []string{"lib", "lib64"} {
		if err := os.MkdirAll(root, 0o755); err != nil {
			c.t.Fatal(err)
		}
		if err := os.Symlink("usr/"+folder, filepath.Join(root, folder)); err != nil {
			c.t.Fatal(err)
		}
	}
	if out, err := c.ctr("run", "--detach", "--null-io", "--rootfs", "--mount", "type=bind,src=/usr,dst=/usr,options=rbind:ro",
		"--with-ns", "network:"+home.Path(), root, id, "/usr/bin/sleep", "1000"); err != nil {
		c.t.Fatalf("run a container: %v\n%s", err, out)
	}
	c.t.Cleanup(func() {
		if out, err := c.ctr("tasks", "delete", "--force", id); err != nil {
			c.t.Errorf("end a container: %v\n%s", err, out)
		}
	})
	tasks, err := c.ctr("tasks", "list")
	if err != nil {
		c.t.Fatal(err)
	}
	for line := range strings.Lines(tasks) {
		var name string
		var pid int
		if n, _ := fmt.Sscan(line, &name, &pid); n == 2 && name == id {
			return func() { _ = syscall.Kill(pid, syscall.SIGKILL) }
		}
	}
	c.t.Fatalf("there is no container %s:\n%s", id, tasks)
	return nil
}

// TestContainerdRestarts: the observer needs the kernel alone. Containers of a real containerd end while it is away, and
// after it has come back.
func TestContainerdRestarts(t *testing.T) {
	n := onKernel(t)
	n.kernel.real = OpenNamespace(t.Context(), "/proc")
	c := newContainerd(t)
	var ends []func()
	for i := range 3 {
		pod, home := running(i), nettest.Alone(t)
		app := n.app(home, func(ctx context.Context, network, address string) (net.Conn, error) {
			return home.DialFrom(ctx, nettest.Neighbour, network, address)
		})
		container := c.run(idOf("app", pod.UID), home)
		ends = append(ends, func() { app(); container() })
		n.list = append(n.list, *pod)
	}
	stop := n.run(func(o *Observer) { o.Proc = "/proc" })
	n.watched(3)
	ended := func(i int, last *corev1.Pod) {
		t.Helper()
		ends[i]()
		n.changes.Modify(exited(last, 137))
		n.changes.Delete(exited(last, 137))
		if r := n.next(); !known(t, r) || len(r.Exits) != 1 {
			t.Errorf("%s: %q, exits %+v", r.Pod, r.Unknown, r.Exits)
		}
	}
	begun := func(i int) *corev1.Pod {
		t.Helper()
		last := deleted(&n.list[i], 30)
		n.changes.Modify(last)
		n.wait(1)
		return last
	}
	away, back := begun(0), begun(1)
	c.stop()
	ended(0, away)
	c.start()
	ended(1, back)
	ended(2, begun(2))
	stop()
	n.none()
}
