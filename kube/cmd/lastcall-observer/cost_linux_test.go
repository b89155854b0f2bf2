//go:build cost

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

var window = flag.Duration("window", 10*time.Second, "`time` of the measurement")

// The test binary is the pods, too, if this is set.
const appAddress = "LASTCALL_COST_ADDRESS"

func TestMain(m *testing.M) {
	if os.Getenv(appAddress) != "" {
		if err := bePod(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// bePod is an app and its clients. Its input is a line for each command: "dial N" connects N times, "rate N" ends N
// sockets per second.
func bePod() error {
	runtime.GOMAXPROCS(1)
	ln, err := net.Listen("tcp", os.Getenv(appAddress))
	if err != nil {
		return err
	}
	go serveApp(ln)
	dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(nettest.Neighbour, 0))}
	var kept []net.Conn
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		command, argument, _ := strings.Cut(in.Text(), " ")
		n, _ := strconv.ParseFloat(argument, 64)
		switch command {
		case "dial":
			for range int(n) {
				c, err := dialer.Dial("tcp", ln.Addr().String())
				if err != nil {
					return err
				}
				if err := exchange(c, answerIt); err != nil {
					return err
				}
				kept = append(kept, c)
			}
		case "rate":
			repeat(2/n, func() {
				if c, err := dialer.Dial("tcp", ln.Addr().String()); err == nil {
					_ = exchange(c, closeIt)
					_, _ = io.Copy(io.Discard, c) // the app closes first: the client's port is free again
					_ = c.Close()
				}
			})
		}
		fmt.Println("ok")
	}
	runtime.KeepAlive(kept)
	return in.Err()
}

// Requests to the app, a byte each.
const (
	answerIt = 'a'
	closeIt  = 'c' // after the answer
)

func serveApp(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			b := make([]byte, 1)
			for {
				if _, err := io.ReadFull(c, b); err != nil {
					return
				}
				if _, err := c.Write(b); err != nil || b[0] == closeIt {
					return
				}
			}
		}()
	}
}

// exchange sends a request and awaits the answer.
func exchange(c net.Conn, request byte) error {
	b := []byte{request}
	if _, err := c.Write(b); err != nil {
		return err
	}
	_, err := io.ReadFull(c, b)
	return err
}

// repeat does something each so many seconds until the returned function is called. It begins at a random time: pods that
// do it at once would wait for each other.
func repeat(seconds float64, do func()) (stop func()) {
	stopped, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		pause := time.Duration(seconds * float64(time.Second))
		select {
		case <-stopped:
			return
		case <-time.After(rand.N(pause)):
		}
		clock := time.NewTicker(pause)
		defer clock.Stop()
		for {
			select {
			case <-stopped:
				return
			case <-clock.C:
				do()
			}
		}
	}()
	return func() { close(stopped); <-done }
}

// simulated is a pod: a process in a network namespace of its own.
type simulated struct {
	corev1.Pod
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// do sends a command and awaits its end.
func (p *simulated) do(t *testing.T, command string) {
	t.Helper()
	if _, err := fmt.Fprintln(p.in, command); err != nil {
		t.Fatal(err)
	}
	if _, err := p.out.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
}

// simulate starts pod number i, and adds it to a process table.
func simulate(t *testing.T, proc string, i int) *simulated {
	t.Helper()
	uid := fmt.Sprintf("00000000-0000-0000-0000-%012d", i)
	p := &simulated{cmd: exec.Command(os.Args[0])}
	home := nettest.Alone(t)
	p.cmd.Env = append(os.Environ(), appAddress+"="+home.TCP4(8080), "GOGC=400")
	p.cmd.Stderr = os.Stderr
	var err1, err2 error
	p.in, err1 = p.cmd.StdinPipe()
	out, err2 := p.cmd.StdoutPipe()
	if err := errors.Join(err1, err2, home.Start(p.cmd)); err != nil { // Pdeathsig would be that of home's thread
		t.Fatal(err)
	}
	home.Close()
	t.Cleanup(func() { _ = p.cmd.Process.Kill(); _ = p.cmd.Wait() })
	p.out = bufio.NewReader(out)
	number := strconv.Itoa(p.cmd.Process.Pid)
	folder := filepath.Join(proc, number)
	if err := errors.Join(os.MkdirAll(filepath.Join(folder, "ns"), 0o755),
		os.WriteFile(filepath.Join(folder, "stat"), []byte(number+" (app) S 1 1"), 0o644),
		os.Symlink("/proc/"+number+"/ns/net", filepath.Join(folder, "ns", "net"))); err != nil {
		t.Fatal(err)
	}
	p.Pod = corev1.Pod{
		TypeMeta:   metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("web-%d", i), Namespace: "shop", UID: types.UID(uid)},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}},
	}
	p.restart(t, proc, i)
	return p
}

// restart gives the pod's container an ID.
func (p *simulated) restart(t *testing.T, proc string, i int) {
	t.Helper()
	id, pod := fmt.Sprintf("%064x", i), strings.ReplaceAll(string(p.UID), "-", "_")
	group := fmt.Sprintf("0::/kubepods.slice/kubepods-pod%s.slice/cri-containerd-%s.scope\n", pod, id)
	if err := os.WriteFile(filepath.Join(proc, strconv.Itoa(p.cmd.Process.Pid), "cgroup"), []byte(group), 0o644); err != nil {
		t.Fatal(err)
	}
	p.Status = corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
		Name: "app", ContainerID: "containerd://" + id, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
	}}}
}

// all sends a command to the pods at once.
func (s *server) all(t *testing.T, command string) {
	var wait sync.WaitGroup
	for _, p := range s.pods {
		wait.Go(func() { p.do(t, command) })
	}
	wait.Wait()
}

// server is an API server with pods.
type server struct {
	*httptest.Server
	pods    []*simulated
	changes chan corev1.Pod
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	q := r.URL.Query()
	switch {
	case q.Get("sendInitialEvents") == "true":
		w.WriteHeader(http.StatusUnprocessableEntity)
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Message: "no streamed lists", Reason: metav1.StatusReasonInvalid, Code: http.StatusUnprocessableEntity})
	case q.Get("watch") == "":
		list := corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
		for _, p := range s.pods {
			list.Items = append(list.Items, p.Pod)
		}
		_ = json.NewEncoder(w).Encode(list)
	default:
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		for {
			select {
			case <-r.Context().Done():
				return
			case p := <-s.changes:
				_ = json.NewEncoder(w).Encode(map[string]any{"type": "MODIFIED", "object": p})
				w.(http.Flusher).Flush()
			}
		}
	}
}

// build builds the observer as its image has it.
func build(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "lastcall-observer")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the observer: %v\n%s", err, out)
	}
	return program
}

// observing starts the observer with the rights that the chart gives it, and waits until it watches all pods.
func observing(t *testing.T, program string, s *server, proc string) (process int, address string) {
	t.Helper()
	config := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"a","cluster":{"server":%q}}],"contexts":[{"name":"a","context":{"cluster":"a"}}],"current-context":"a"}`, s.URL)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	address = nettest.FreeAddress(t, "127.0.0.1")
	cmd := exec.Command("setpriv", "--bounding-set", "-all,+sys_admin,+sys_ptrace", program, "--node", "node", "--kubeconfig", config, "--proc", proc, "--events=false", "--listen", address)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		kill := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
		defer kill.Stop()
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	want := fmt.Sprintf(`{state="watched"} %d`, len(s.pods))
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		if strings.Contains(metrics(address), want) {
			return cmd.Process.Pid, address
		}
		if time.Now().After(end) {
			t.Fatal("the observer does not watch the pods")
		}
	}
}

// metrics are those of the observer, empty before it serves.
func metrics(address string) string {
	answer, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		return ""
	}
	defer answer.Body.Close()
	b, _ := io.ReadAll(answer.Body)
	return string(b)
}

// used is the processor time of a process.
func used(t *testing.T, process int) time.Duration {
	t.Helper()
	var at unix.Timespec
	if err := unix.ClockGettime(int32(^process<<3|2), &at); err != nil { // see clock_getcpuclockid(3)
		t.Fatal(err)
	}
	return time.Duration(at.Nano())
}

// memory is a line of /proc/PID/status.
func memory(process int, name string) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", process))
	_, after, _ := strings.Cut(string(b), name+":")
	line, _, _ := strings.Cut(after, "\n")
	kb, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(line), " kB"))
	return fmt.Sprintf("%.1f MB", float64(kb)/1024)
}

func load() string {
	b, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(b), " ")
	return first
}

// The pods of the node, and the connections of each.
const count, connections = 200, 50

// node starts the pods of a node, its API server, and fills its process table.
func node(t *testing.T, proc string) *server {
	t.Helper()
	if err := os.Mkdir(filepath.Join(proc, "1"), 0o755); err != nil {
		t.Fatal(err)
	}
	s := &server{changes: make(chan corev1.Pod, count)}
	for i := range count {
		s.pods = append(s.pods, simulate(t, proc, i+1))
	}
	s.all(t, fmt.Sprintf("dial %d", connections))
	s.Server = httptest.NewServer(s)
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s
}

// TestNode measures what the observer costs on a node with other work while no pod ends. Each second, each pod has 0.2
// connections of probes, the node 50 of clients, two pods have a new status, and two other processes start; each 5 s a
// container restarts, each 15 s Prometheus reads the metrics:
// go test -tags cost -run TestNode -v -timeout 30m ./kube/cmd/lastcall-observer -window 10m
func TestNode(t *testing.T) {
	const settle, others = 20 * time.Second, 600
	program, proc := build(t), t.TempDir()
	s := node(t, proc)
	start := func(i int) {
		folder := filepath.Join(proc, strconv.Itoa(10_000_000+i))
		if err := errors.Join(os.MkdirAll(folder, 0o755), os.WriteFile(filepath.Join(folder, "cgroup"), []byte("0::/system.slice/a.service\n"), 0o644)); err != nil {
			t.Error(err)
		}
	}
	for i := range others {
		start(i)
	}
	process, address := observing(t, program, s, proc)
	s.all(t, fmt.Sprintf("rate %g", 2*(0.2+50.0/count)))
	n := 0
	defer repeat(0.5, func() {
		n++
		p := s.pods[n%count]
		p.Annotations = map[string]string{"update": strconv.Itoa(n), "others": strings.Repeat("x", 8<<10)} // as large as a real one
		if n%10 == 0 {
			p.restart(t, proc, 1000*n)
		}
		s.changes <- *p.DeepCopy()
		start(others + n)
		_ = os.RemoveAll(filepath.Join(proc, strconv.Itoa(10_000_000+n)))
		if n%30 == 0 {
			_ = metrics(address)
		}
	})()
	time.Sleep(settle)
	from, ours := time.Now(), used(t, process)
	time.Sleep(*window)
	took := time.Since(from)
	t.Logf("observer %.3f %% of a core over %v, %s resident, at most %s, load %s", 100*(used(t, process)-ours).Seconds()/took.Seconds(),
		took.Round(time.Second), memory(process, "VmRSS"), memory(process, "VmHWM"), load())
}
