package pipe

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/accesslog"
	"github.com/lastcall-dev/lastcall/internal/sidecar/logs/logstest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
	"github.com/lastcall-dev/lastcall/internal/wire/http1/http1test"
)

// tellBack is an app that answers each request with what it has seen of it.
func tellBack(w http.ResponseWriter, r *http.Request) {
	n, err := io.Copy(io.Discard, r.Body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	fmt.Fprintf(w, "%s %s %d", r.Method, r.RequestURI, n)
}

// ask sends the bytes and returns what the app reports to have seen, and the last
// status when that is another than 200.
func ask(t *testing.T, p *Pipe, s http1test.Case) (seen []string, status int) {
	t.Helper()
	c := dialPipe(t, p, s.Bytes)
	_ = c.CloseWrite()
	for i := 0; ; i++ {
		method := "GET"
		if i < len(s.Seen) {
			method, _, _ = strings.Cut(s.Seen[i], " ")
		}
		resp, err := http.ReadResponse(c.r, &http.Request{Method: method})
		if err != nil {
			return seen, 0
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatalf("the body of an answer: %v", err)
		}
		switch resp.StatusCode {
		case 100:
		case 200:
			seen = append(seen, strings.TrimSpace(string(body)))
		default:
			if resp.StatusCode == s.Status && resp.Header.Get("Server") != accesslog.Server {
				t.Errorf("%s: it is the app that has refused", s.Name)
			}
			return seen, resp.StatusCode
		}
	}
}

// What an app sees is exactly what the client has meant, or nothing.
func TestSmuggling(t *testing.T) {
	p := startPipe(t, startHTTP(t, tellBack), HTTP)
	for _, s := range http1test.Cases() {
		t.Run(s.Name, func(t *testing.T) {
			seen, status := ask(t, p, s)
			if !slices.Equal(seen, s.Seen) || status != s.Status {
				t.Errorf("the app saw %q, then %d; want %q, then %d", seen, status, s.Seen, s.Status)
			}
		})
	}
}

// Of what is refused alone not a byte reaches the app.
func TestNothingBrokenIsForwarded(t *testing.T) {
	for _, s := range http1test.Cases() {
		if len(s.Seen) > 0 {
			continue
		}
		var got logstest.Buffer
		app := startApp(t, func(c net.Conn) { _, _ = io.Copy(&got, c) })
		p := startPipe(t, app, HTTP)
		if seen, status := ask(t, p, s); len(seen) > 0 || status != s.Status {
			t.Errorf("%s: %q, then %d", s.Name, seen, status)
		}
		closePipe(t, p)
		if b := got.String(); b != "" {
			t.Errorf("%s: the app got %q", s.Name, b)
		}
	}
}

// The same in front of apps that parse in other ways: what they refuse themselves
// is theirs to refuse, but they must see nothing that was not meant.
func TestSmugglingRealApps(t *testing.T) {
	for _, app := range []struct {
		name  string
		start func(*testing.T) net.Addr
		sees  func(string) string // what of "METHOD TARGET BODYBYTES" the app can report
	}{
		{"nginx", startNginx, func(s string) string {
			return strings.Replace(s[:strings.LastIndex(s, " ")], "http://b", "", 1)
		}},
		{"gunicorn", startGunicorn, func(s string) string { return s }},
	} {
		t.Run(app.name, func(t *testing.T) {
			p := startPipe(t, app.start(t), HTTP)
			for _, s := range http1test.Cases() {
				seen, status := ask(t, p, s)
				for i, one := range seen {
					if i >= len(s.Seen) || one != app.sees(s.Seen[i]) {
						t.Errorf("%s: the app saw %q; meant were %q", s.Name, seen, s.Seen)
						break
					}
				}
				if len(seen) < len(s.Seen) && status == 0 && !strings.Contains(s.Bytes, "Upgrade") && app.name == "nginx" {
					t.Errorf("%s: the app saw only %q of %q", s.Name, seen, s.Seen)
				}
				if len(s.Seen) == 0 && status != s.Status {
					t.Errorf("%s: answered with %d; want %d", s.Name, status, s.Status)
				}
			}
		})
	}
}

// startPeer runs a real app that listens at the address, and ends it with the test.
func startPeer(t *testing.T, addr net.Addr, command string, args ...string) {
	t.Helper()
	var out strings.Builder
	cmd := exec.Command(command, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	must.Do(t, cmd.Start())
	done := make(chan struct{})
	go func() { defer close(done); _ = cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Signal(os.Interrupt); <-done })
	polltest.Eventually(t, command+" listens", func() bool {
		select {
		case <-done:
			t.Fatalf("%s has ended: %s", command, out.String())
		default:
		}
		c, err := net.Dial("tcp", addr.String())
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
}

func startNginx(t *testing.T) net.Addr {
	nginx, addr, dir := peers.Need(t, "nginx"), refused(t), t.TempDir()
	conf := fmt.Sprintf(`daemon off; master_process off; pid %[1]s/pid; error_log stderr warn;
events {}
http {
    access_log off; client_body_temp_path %[1]s; proxy_temp_path %[1]s; fastcgi_temp_path %[1]s; uwsgi_temp_path %[1]s; scgi_temp_path %[1]s;
    server { listen %[2]s; location / { return 200 "$request_method $request_uri"; } }
}`, dir, addr)
	file := filepath.Join(dir, "nginx.conf")
	must.Do(t, os.WriteFile(file, []byte(conf), 0o600))
	startPeer(t, addr, nginx, "-p", dir, "-e", "stderr", "-c", file)
	return addr
}

func startGunicorn(t *testing.T) net.Addr {
	gunicorn, addr := peers.Need(t, "gunicorn"), refused(t)
	startPeer(t, addr, gunicorn, "--chdir", "testdata", "--bind", addr.String(), "--worker-class", "gthread", "--threads", "4", "--keep-alive", "1", "--log-level", "critical", "tellback:app")
	return addr
}
