//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/live"
	"github.com/lastcall-dev/lastcall/internal/peers"
)

// topPatience is how long a test waits for what a terminal must show.
const topPatience = 30 * time.Second

// window is that of a real tmux in which top runs.
type window struct {
	t      *testing.T
	tmux   string
	folder string
}

// openTerminal starts top in a terminal of 80 columns. Its process is the terminal's only one, so that the window shows how
// it ended.
func openTerminal(t *testing.T, kubeconfig string) *window {
	t.Helper()
	program, err := exec.LookPath("lastcallctl")
	if err != nil {
		t.Fatal(err)
	}
	s := &window{t: t, tmux: peers.Need(t, "tmux"), folder: t.TempDir()}
	command := fmt.Sprintf("echo before; sh -c 'echo $$ >%[1]s/new; mv %[1]s/new %[1]s/pid; exec %[2]s top shop/web --kubeconfig %[3]s'; echo ended with $?; cat",
		s.folder, program, kubeconfig)
	s.do("-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", command)
	t.Cleanup(func() { _ = s.command("kill-server").Run() })
	return s
}

func (s *window) command(args ...string) *exec.Cmd {
	c := exec.Command(s.tmux, append([]string{"-S", filepath.Join(s.folder, "socket")}, args...)...)
	c.Env = append(os.Environ(), "TERM=xterm-256color", "SHELL=/bin/sh", "LC_ALL=C.UTF-8", "TMUX=")
	return c
}

func (s *window) do(args ...string) string {
	s.t.Helper()
	out, err := s.command(args...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("tmux %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// shows waits until the window has all texts, and returns it.
func (s *window) shows(texts ...string) string {
	s.t.Helper()
	for end := time.Now().Add(topPatience); ; time.Sleep(20 * time.Millisecond) {
		pane, missing := s.do("capture-pane", "-p"), ""
		for _, text := range texts {
			if !strings.Contains(pane, text) {
				missing = text
			}
		}
		if missing == "" {
			return pane
		}
		if time.Now().After(end) {
			s.t.Fatalf("the terminal does not show %q:\n%s", missing, pane)
		}
	}
}

// ends waits until top's process has gone, or is a zombie of a parent that has not reaped it yet.
func (s *window) ends() {
	s.t.Helper()
	pid, err := os.ReadFile(filepath.Join(s.folder, "pid"))
	if err != nil {
		s.t.Fatal(err)
	}
	for end := time.Now().Add(topPatience); ; time.Sleep(20 * time.Millisecond) {
		stat, err := os.ReadFile(filepath.Join("/proc", strings.TrimSpace(string(pid)), "stat"))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("top is still running: %s", stat)
		}
	}
}

// drainingCluster is an API server with a Deployment of two pods: one with an agent that drains, and one whose agent does not answer.
func drainingCluster(t *testing.T) (kubeconfig string) {
	t.Helper()
	limit := drain.Millis(23 * time.Second)
	feed := live.New(func() live.State {
		return live.State{
			Host: "web-1", Phase: "waiting", Mode: "exit-on-zero", Drain: &live.Drain{Took: drain.Millis(6 * time.Second), Limit: &limit, Kill: drain.Millis(25 * time.Second)},
			Connections: []live.Connections{{Protocol: "http/1.1", Busy: 1, Idle: 3}},
			Holding:     []drain.Conversation{{Peer: "10.1.2.3:51568", Protocol: "http/1.1", Request: "GET /report/" + strings.Repeat("long/", 40), Age: drain.Millis(11 * time.Second)}},
		}
	}, func() <-chan struct{} { return nil })
	agent := httptest.NewServer(http.HandlerFunc(feed.Events))
	t.Cleanup(agent.Close)
	t.Cleanup(feed.Close)
	labels := map[string]string{"app": "web"}
	pods := corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}}
	for _, name := range []string{"web-1", "web-2"} {
		pods.Items = append(pods.Items, corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name), Labels: labels},
			Spec:       corev1.PodSpec{NodeName: "node-a", Containers: []corev1.Container{{Name: "app"}, {Name: "lastcall"}}},
			Status:     corev1.PodStatus{Phase: corev1.PodRunning},
		})
	}
	deployment := appsv1.Deployment{
		TypeMeta: metav1.TypeMeta{Kind: "Deployment", APIVersion: "apps/v1"}, ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}},
	}
	write := func(code int, object any) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			_ = json.NewEncoder(w).Encode(object)
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/namespaces/shop/pods", write(http.StatusOK, pods))
	mux.HandleFunc("GET /apis/apps/v1/namespaces/shop/deployments/web", write(http.StatusOK, deployment))
	mux.HandleFunc("POST /api/v1/namespaces/shop/pods/web-1/portforward", forward(agent.Listener.Addr().String()))
	mux.HandleFunc("POST /api/v1/namespaces/shop/pods/web-2/portforward", forward(""))
	mux.HandleFunc("/", write(http.StatusNotFound, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Reason: metav1.StatusReasonNotFound, Code: 404}))
	server := httptest.NewServer(mux)
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := "apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters: [{name: a, cluster: {server: '" + server.URL + "'}}]\ncontexts: [{name: a, context: {cluster: a, user: a}}]\nusers: [{name: a, user: {token: t}}]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// forward connects the streams of a port forwarding to an address; empty is a port at which nothing listens.
func forward(address string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if _, err := httpstream.Handshake(r, w, []string{portforward.PortForwardProtocolV1Name}); err != nil {
			return
		}
		streams := make(chan httpstream.Stream, 2)
		connection := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, _ <-chan struct{}) error {
			streams <- s
			return nil
		})
		if connection == nil {
			return
		}
		defer func() { _ = connection.Close() }()
		complaints, data := <-streams, <-streams
		agent, err := net.Dial("tcp", address)
		if err != nil {
			_, _ = io.WriteString(complaints, "connect to the port: connection refused")
			_ = complaints.Close()
			_ = data.Close()
			<-connection.CloseChan()
			return
		}
		go func() { _, _ = io.Copy(agent, data) }()
		go func() { <-connection.CloseChan(); _ = agent.Close() }()
		_, _ = io.Copy(data, agent)
	}
}

// TestTopInATerminal drives top by the keys of a real terminal.
func TestTopInATerminal(t *testing.T) {
	t.Parallel()
	kubeconfig := drainingCluster(t)
	t.Run("rows, keys and resizing", func(t *testing.T) {
		t.Parallel()
		s := openTerminal(t, kubeconfig)
		pane := s.shows("> web-1", "waiting", "GET /report", "10.1.2.3:51568", "q: quit")
		if strings.Contains(pane, "before") {
			t.Errorf("top shares the screen with the shell:\n%s", pane)
		}
		row := func(pane, name string) string {
			for line := range strings.Lines(pane) {
				if strings.Contains(line, name+" ") && !strings.Contains(line, "/"+name) {
					return line
				}
			}
			return ""
		}
		if one := row(pane, "web-1"); !strings.Contains(one, "GET /") || !strings.Contains(one, "…") || utf8.RuneCountInString(strings.TrimSuffix(one, "\n")) > 80 {
			t.Errorf("the row of web-1 is %q", one)
		}
		s.do("send-keys", "Down")
		s.shows("> web-2", "shop/web-2 on node-a", "connect to the port: connection refused")
		s.do("send-keys", "k")
		s.shows("> web-1")
		s.do("resize-window", "-x", "60", "-y", "10")
		s.shows("> web-1", "q: quit")
		s.do("resize-window", "-x", "140", "-y", "30")
		for end := time.Now().Add(topPatience); ; time.Sleep(20 * time.Millisecond) {
			if one := row(s.shows("> web-1"), "web-1"); utf8.RuneCountInString(one) > 100 {
				break
			} else if time.Now().After(end) {
				t.Fatalf("the row does not use the wider terminal: %q", one)
			}
		}
		s.do("send-keys", "q")
		s.shows("before", "ended with 0")
	})
	t.Run("Ctrl-C", func(t *testing.T) {
		t.Parallel()
		s := openTerminal(t, kubeconfig)
		s.shows("> web-1")
		s.do("send-keys", "C-c")
		s.shows("before", "ended with 0")
	})
	t.Run("the terminal closes", func(t *testing.T) {
		t.Parallel()
		s := openTerminal(t, kubeconfig)
		s.shows("> web-1")
		s.do("kill-session")
		s.ends()
	})
}
