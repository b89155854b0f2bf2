package observe

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/loadtest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
)

// server is the variable that makes this test program a server instead: go, or deaf, which never accepts.
const server = "LASTCALL_OBSERVE_SERVER"

func TestMain(m *testing.M) {
	if kind := os.Getenv(server); kind != "" {
		serve(kind, os.Getenv(server+"_ADDRESS"))
		return
	}
	goleak.VerifyTestMain(m)
}

func serve(kind, address string) {
	ln, err := net.Listen("tcp", address)
	if err != nil {
		panic(err)
	}
	if kind == "deaf" {
		select {}
	}
	panic(http.Serve(ln, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-r.Context().Done()
		}
		fmt.Fprint(w, "ok")
	})))
}

// pythonApp is a WSGI app and, as a program, a server of the standard library.
const pythonApp = `import sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

def app(environ, start):
    if environ["PATH_INFO"] == "/slow":
        time.sleep(60)
    start("200 OK", [("Content-Length", "2")])
    return [b"ok"]

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.path == "/slow":
            time.sleep(60)
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")
    def log_message(self, *args):
        pass

if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
`

// program is a real server in a process group of its own. It answers / at once, and /slow not at all.
type program struct {
	cmd     *exec.Cmd
	address string
	exited  chan struct{}
}

// startApp starts one of go, go6 (IPv6), deaf, python, gunicorn and nginx.
func startApp(t *testing.T, kind string) *program {
	t.Helper()
	host := "127.0.0.1"
	if kind == "go6" {
		host = "::1"
	}
	address, dir := nettest.FreeAddress(t, host), t.TempDir()
	port := fmt.Sprint(netip.MustParseAddrPort(address).Port())
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		must.Do(t, os.WriteFile(path, []byte(text), 0o644))
		return path
	}
	var cmd *exec.Cmd
	switch kind {
	case "python":
		cmd = exec.Command(peers.Need(t, "python"), write("app.py", pythonApp), port)
	case "gunicorn":
		path := peers.Need(t, "gunicorn")
		write("app.py", pythonApp)
		cmd = exec.Command(path, "--bind", address, "--worker-class", "gthread", "--threads", "8", "--keep-alive", "60",
			"--graceful-timeout", "1", "--log-level", "error", "--no-control-socket", "app:app")
		cmd.Dir = dir
	case "nginx":
		path := peers.Need(t, "nginx")
		slow := nettest.Listen(t, "127.0.0.1:0")
		t.Cleanup(func() { _ = slow.Close() })
		cmd = exec.Command(path, "-p", dir, "-c", write("nginx.conf", peers.NginxConf(dir, address, slow.Addr().String())))
	default:
		self, err := os.Executable()
		must.Do(t, err)
		cmd = exec.Command(self)
		cmd.Env = append(os.Environ(), server+"="+kind, server+"_ADDRESS="+address)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stderr = os.Stderr
	must.Do(t, cmd.Start())
	a := &program{cmd: cmd, address: address, exited: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		close(a.exited)
	}()
	t.Cleanup(func() { a.end(syscall.SIGKILL) })
	for end := time.Now().Add(30 * time.Second); ; {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
			return a
		}
		select {
		case <-a.exited:
			t.Fatalf("%s has exited: %v", kind, cmd.ProcessState)
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// end sends a signal to the process, SIGKILL to its whole group, and waits for its exit.
func (a *program) end(s syscall.Signal) {
	pid := a.cmd.Process.Pid
	if s == syscall.SIGKILL {
		pid = -pid
	}
	_ = syscall.Kill(pid, s)
	<-a.exited
}

// caller is a connection that counts its own losses.
type caller struct {
	*loadtest.Kept
	owed int // answers
}

func connect(t *testing.T, a *program) *caller {
	t.Helper()
	return &caller{Kept: loadtest.Keep(t, a.address, 20*time.Second)}
}

// ask sends requests in one write.
func (c *caller) ask(t *testing.T, paths ...string) {
	t.Helper()
	var all string
	for _, path := range paths {
		all += "GET " + path + " HTTP/1.1\r\nHost: app\r\n\r\n"
	}
	_, err := io.WriteString(c, all)
	must.Do(t, err)
	c.owed += len(paths)
}

// receive reads an answer and reports whether it is whole.
func (c *caller) receive() bool {
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	_, err := loadtest.Receive(c.R)
	if err == nil {
		c.owed--
	}
	return err == nil
}

// losses counts the answers that never come, and closes the connection.
func (c *caller) losses() int {
	for c.owed > 0 && c.receive() {
	}
	_ = c.Close()
	return c.owed
}
