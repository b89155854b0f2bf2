package pipe

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
)

const tooLargeClose = "HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno"

// An app that answers before it has the whole request, and reads on, gets all of it.
func TestAnswerWithinRequest(t *testing.T) {
	const size = 200_000
	for _, tt := range []struct {
		name, answer string
		half         bool // the app ends its output after the answer, as nginx does
		chunked      bool
	}{
		{"close", tooLargeClose, false, false},
		{"close and half-close", tooLargeClose, true, false},
		{"chunked request", tooLargeClose, true, true},
		{"until close", "HTTP/1.1 413 Content Too Large\r\n\r\nno", true, false},
		{"kept", strings.Replace(tooLargeClose, "Connection: close\r\n", "", 1), false, false},
	} {
		for _, draining := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, draining %t", tt.name, draining), func(t *testing.T) {
				got := make(chan int64, 1)
				app := startApp(t, func(c net.Conn) {
					r := bufio.NewReader(c)
					req, err := http.ReadRequest(r)
					if err != nil {
						return
					}
					_, _ = io.WriteString(c, tt.answer)
					if tt.half {
						_ = c.(*net.TCPConn).CloseWrite()
					}
					n, _ := io.Copy(io.Discard, req.Body)
					got <- n
				})
				p, c := startClient(t, app, HTTP)
				framing := "Content-Length: " + strconv.Itoa(size)
				if tt.chunked {
					framing = "Transfer-Encoding: chunked"
				}
				c.send("POST / HTTP/1.1\r\nHost: a\r\n" + framing + "\r\n\r\n")
				if tt.chunked {
					c.send(strconv.FormatInt(size, 16) + "\r\n")
				}
				c.send(strings.Repeat("x", size/2))
				if draining {
					awaitActivity(t, p, 1, 1)
					must.Do(t, p.Drain(ctx))
					must.Do(t, p.CloseIdle(ctx, 0))
				}
				for { // without the end, which an answer without a length has
					line, err := c.r.ReadString('\n')
					must.Do(t, err)
					if line == "\r\n" {
						break
					}
				}
				c.expect("no")
				if tt.half {
					c.wantEnd() // the app's
				}
				if draining {
					awaitActivity(t, p, 1, 1)
				}
				c.send(strings.Repeat("x", size/2))
				if tt.chunked {
					c.send("\r\n0\r\n\r\n")
				}
				if n := <-got; n != size {
					t.Errorf("the app got %d of %d bytes", n, size)
				}
				_ = c.CloseWrite()
				if !tt.half {
					c.wantEnd()
				}
				awaitNone(t, p)
			})
		}
	}
}

// slowUpload sends 24 KB in two seconds with http.client, and prints the status.
const slowUpload = `
import http.client, sys, time
def parts():
    for i in range(20):
        yield b'x' * 1200
        time.sleep(0.1)
c = http.client.HTTPConnection(sys.argv[1])
c.request('POST', '/', parts(), {'Content-Length': '24000'})
print(c.getresponse().status)
`

// http.client reads nothing before it has sent everything. It gets nginx' 413.
func TestAnswerWithinRequestHTTPClient(t *testing.T) {
	t.Parallel()
	nginx, python, addr, dir := peers.Need(t, "nginx"), peers.Need(t, "python"), refused(t), t.TempDir()
	file := filepath.Join(dir, "nginx.conf")
	must.Do(t, os.WriteFile(file, fmt.Appendf(nil, `daemon off; master_process off; pid %[1]s/pid; error_log stderr warn;
events {}
http {
    access_log off; client_body_temp_path %[1]s; proxy_temp_path %[1]s; fastcgi_temp_path %[1]s; uwsgi_temp_path %[1]s; scgi_temp_path %[1]s;
    server { listen %[2]s; client_max_body_size 1k; location / { return 200; } }
}`, dir, addr), 0o600))
	startPeer(t, addr, nginx, "-p", dir, "-e", "stderr", "-c", file)
	for name, to := range map[string]net.Addr{"direct": addr, "pipe": startPipe(t, addr, HTTP).Addr(0)} {
		out, err := exec.Command(python, "-c", slowUpload, to.String()).CombinedOutput()
		if err != nil || strings.TrimSpace(string(out)) != "413" {
			t.Errorf("%s: %v, %s", name, err, out)
		}
	}
}

// An app that closes before it has read the request, and after its answer: the client can send the rest, and read.
func TestAnswerWithinRequestAppCloses(t *testing.T) {
	app := startApp(t, func(c net.Conn) {
		readHead(bufio.NewReader(c))
		_, _ = io.WriteString(c, tooLargeClose)
	})
	p, c := startClient(t, app, HTTP)
	c.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 8000000\r\n\r\n")
	for range 80 {
		c.send(strings.Repeat("x", 100_000))
	}
	if got := c.rest(); got != tooLargeClose {
		t.Errorf("got %q", got)
	}
	_ = c.Close()
	awaitNone(t, p)
}

// The last call ends a connection within a body whose response is complete without a second response.
func TestAnswerWithinRequestLastCall(t *testing.T) {
	p, c := startClient(t, answering(t, okBody), HTTP)
	c.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nx")
	c.response("POST")
	must.Do(t, p.Drain(ctx))
	_, _ = p.LastCall(ctx, 0)
	c.wantEnd()
}

// After a final answer to a request that waits for 100, its body or another request may follow: so the answer is the
// connection's last, and nothing that follows reaches the app.
func TestExpectFinal(t *testing.T) {
	for _, tt := range []struct{ name, follows string }{
		{"a request follows", get("/2")},
		{"the body follows", "abc"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := startScripted(t, okBody)
			_, c := startClient(t, a, HTTP)
			c.send("PUT /1 HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
			resp := c.response("PUT")
			if resp.StatusCode != http.StatusOK || !resp.Close {
				t.Errorf("status %d, closes: %t", resp.StatusCode, resp.Close)
			}
			c.wantEnd()
			_, _ = io.WriteString(c, tt.follows)
			_ = c.CloseWrite()
			if got := <-a.got; got != "" {
				t.Errorf("the app got %q", got)
			}
		})
	}
}

// If the body is on its way, or the app has sent a 100, the connection is kept.
func TestExpectKept(t *testing.T) {
	app := startHTTP(t, tellBack)
	_, c := startClient(t, app, HTTP)
	c.send("PUT /1 HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
	if resp := c.head(); resp.StatusCode != http.StatusContinue {
		t.Fatalf("status %d", resp.StatusCode)
	}
	c.send("abc")
	if resp := c.response("PUT"); resp.Close || !strings.HasSuffix(bodyOf(resp), "3") {
		t.Error("the connection is not kept")
	}
	c.wantOK()
}

// What is valid of a response reaches the client, which could repeat the request otherwise.
func TestInvalidChunk(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	for _, tt := range []struct{ name, body, want string }{
		{"first line", "zz\r\nok\r\n", ""},
		{"second line", "2\r\nok\r\nzz\r\n", "2\r\nok\r\n"},
		{"data", "2\r\nokay\r\n", "2\r\nok"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, c := startClient(t, answering(t, head+tt.body), HTTP)
			c.send(get("/"))
			if got := c.rest(); got != head+tt.want {
				t.Errorf("got %q", got)
			}
		})
	}
	_, c := startClient(t, answering(t, head+"0000000000000002\r\nok\r\n0\r\n\r\n"), HTTP)
	for range 2 {
		c.wantOK()
	}
}
