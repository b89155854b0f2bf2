package service

import (
	"bytes"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/rehearsal/console"
	"github.com/lastcall-dev/lastcall/rehearsal/load"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

// pythonServer finishes its requests at SIGTERM; without its second line it has no handler.
const pythonServer = `import http.server, os, signal, sys, threading
signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=s.shutdown).start())
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer.daemon_threads = True
s = http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), H)
s.serve_forever()
`

const nodeServer = `require('http').createServer((q, r) => r.end('ok')).listen(process.env.PORT, '127.0.0.1');`

// An app without a handler for SIGTERM runs until SIGKILL, as in a container, with every language; so does the shell
// that starts it. The result names the cause, and raises no grace period.
func TestAppIsPID1(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes ten seconds")
	}
	request, err := load.ParseRequest("GET /")
	must.Do(t, err)
	_, unhandled, _ := strings.Cut(pythonServer, "\n")
	_, unhandled, _ = strings.Cut(unhandled, "\n")
	unhandled = "import http.server, os\n" + unhandled
	quoted := func(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
	var all sync.WaitGroup
	for _, tt := range []struct {
		name, needs, command string
		ending, cause        string
	}{
		{"Python", "python3", "python3 -c " + quoted(unhandled), "SIGKILL", "python3 ignores SIGTERM"},
		{"Python with a handler", "python3", "python3 -c " + quoted(pythonServer), "exit 0", ""},
		{"Node", "node", "node -e " + quoted(nodeServer), "SIGKILL", "node"},
		{"Node with a handler", "node", "node -e " + quoted(nodeServer+"process.on('SIGTERM', () => process.exit(7))"),
			"exit 7", ""},
		{"a shell", "python3", "sh -c " + quoted("python3 -c "+quoted(pythonServer)+"; true"),
			"SIGKILL", "sh is PID 1 and does not pass"},
		{"a shell with exec", "python3", "sh -c " + quoted("exec python3 -c "+quoted(pythonServer)), "exit 0", ""},
	} {
		if _, err := exec.LookPath(tt.needs); err != nil {
			t.Run(tt.name, func(t *testing.T) { t.Skip(err) })
			continue
		}
		all.Go(func() {
			res, err := Run(t.Context(), Options{
				Command: tt.command, Options: load.Options{Requests: []load.Request{request}},
				Setup: strategy.Setup{Strategies: []string{AsIs}}, Pod: Pod{Grace: 3 * time.Second},
			})
			if err != nil {
				t.Errorf("%s: %v", tt.name, err)
				return
			}
			row := res.Rows[0]
			run := row.Runs[0]
			isCause := strings.Contains(run.Cause, tt.cause) && (tt.cause == "") == (run.Cause == "")
			if res.PID1 != "namespace" || row.EndedBy() != tt.ending || !isCause {
				t.Errorf("%s: %s, %+v; want %s, %q", tt.name, res.PID1, run, tt.ending, tt.cause)
			}
			if tt.ending == "SIGKILL" && row.GoneMS() < 3000 {
				t.Errorf("%s: gone after %d ms", tt.name, row.GoneMS())
			}
			var text bytes.Buffer
			if err := res.WriteTable(&text, console.Style{}); err != nil {
				t.Error(err)
			}
			words := strings.Join(strings.Fields(text.String()), " ")
			if !strings.Contains(words, run.Cause) || strings.Contains(words, "terminationGracePeriodSeconds of") {
				t.Errorf("%s:\n%s", tt.name, &text)
			}
		})
	}
	all.Wait()
}

// An app that fails at its start may lack variables: the error names them.
func TestMissingVariables(t *testing.T) {
	request, err := load.ParseRequest("GET /")
	must.Do(t, err)
	_, err = Run(t.Context(), Options{
		Command: "sh -c 'echo no DB_URL >&2; exit 3'", Options: load.Options{Requests: []load.Request{request}},
		Setup: strategy.Setup{Strategies: []string{AsIs}}, Pod: Pod{Missing: []string{"DB_URL (Secret db)"}},
	})
	const want = "does not: DB_URL (Secret db) (add their ConfigMap or Secret to the input of -f, or set them in"
	if err == nil || !strings.Contains(err.Error(), "exit 3") || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v", err)
	}
}
