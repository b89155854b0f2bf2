package pipe

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/counters"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
	"github.com/lastcall-dev/lastcall/internal/wire/http2"
)

// refused is an address without a listener, which no other test uses.
func refused(t *testing.T) net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(nettest.FreeAddress(t, "127.0.0.1")))
}

func TestBrokenClient(t *testing.T) {
	app := startHTTP(t, echo)
	for _, tt := range []struct {
		name, send string
		statuses   []int
	}{
		{"nonsense", "nonsense\r\n\r\n", []int{400}},
		{"both lengths", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", []int{400}},
		{"unknown coding", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", []int{501}},
		{"head too large", "GET / HTTP/1.1\r\nX: " + strings.Repeat("x", 70<<10) + "\r\n\r\n", []int{431}},
		{"head without an end", "GET / HTTP/1.1\r\nX: " + strings.Repeat("x", 70<<10), []int{431}},
		{"after a good one", get("/a") + "nonsense\r\n\r\n", []int{200, 400}},
		{"HTTP/2 after a request", get("/a") + http2.Preface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00", []int{200, 505}},
		{"HTTP/2 after an empty line", "\r\n" + http2.Preface, []int{505}},
		{"other version", "GET / HTTP/1.7\r\n\r\n", []int{505}},
		{"too many fields", "GET / HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("X: y\r\n", 100) + "\r\n", []int{431}},
		{"as many as may be", "GET / HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("X: y\r\n", 99) + "\r\nnonsense\r\n\r\n", []int{200, 400}},
		{"long line", "GET /" + strings.Repeat("x", 62<<10) + " HTTP/1.1\r\nHost: a\r\n\r\n", []int{414}},
		{"line without an end", "GET /" + strings.Repeat("x", 70<<10), []int{414}},
		{"long extensions", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + strings.Repeat("1;"+strings.Repeat("x", 1000)+"\r\na\r\n", 20), []int{400}},
		{"body in time", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nab", []int{408}},
		{"bad chunk after a good one", get("/a") + "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", []int{200, 400}},
		{"bad chunk", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", []int{400}},
		{"head in time", "GET / HTTP/1.1\r\nHost: a\r\nX", []int{408}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := startPipe(t, app, HTTP, func(c *Config) {
				if strings.HasSuffix(tt.name, " in time") {
					c.HeadTimeout, c.RequestTimeout = 100*time.Millisecond, 100*time.Millisecond
				}
			})
			c := dialPipe(t, p, tt.send)
			for _, want := range tt.statuses {
				resp := c.response("GET")
				if resp.StatusCode != want {
					t.Fatalf("status %d; want %d", resp.StatusCode, want)
				}
				if last := want != 200; resp.Close != last {
					t.Errorf("%d: Connection: close %v", want, resp.Close)
				}
			}
			c.wantEnd()
			awaitActivity(t, p, 0, 0)
			s := p.Stats()
			for i, code := range counters.RefusedCodes {
				want := uint64(0)
				if code == tt.statuses[len(tt.statuses)-1] {
					want = 1
				}
				if s.RefusedWith[i] != want {
					t.Errorf("refused with %d: %d; want %d", code, s.RefusedWith[i], want)
				}
			}
		})
	}
}

func TestBrokenApp(t *testing.T) {
	const protocolError = "upstream connect error or disconnect/reset before headers. reset reason: protocol error"
	for _, tt := range []struct {
		name, answer string
		status       int
		body         string
		err          error // of reading it
		closes       bool  // the response announces the close
	}{
		{"talks nonsense", "ERR nonsense\r\n\r\n", 502, protocolError, nil, true},
		{"endless head", "HTTP/1.1 200 OK\r\n" + strings.Repeat("X: y\r\n", 60000), 502, protocolError, nil, true},
		{"switches protocols unrequested", switching, 502, protocolError, nil, true},
		// An app that dies within an answer must not look like one that has finished.
		{"dies within a body", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", 200, "half", io.ErrUnexpectedEOF, false},
		{"dies within chunks", chunkedHead("text/plain") + chunk("half"), 200, "half", io.ErrUnexpectedEOF, false},
		// It has not answered the request that was sent ahead: the client may ask again.
		{"closes with a request ahead", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok", 200, "ok", nil, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := startPipe(t, startApp(t, func(c net.Conn) {
				r := bufio.NewReader(c)
				if readHead(r); strings.Contains(tt.name, "ahead") {
					readHead(r)
				}
				_, _ = io.WriteString(c, tt.answer)
			}), HTTP)
			c := dialPipe(t, p)
			if c.send(get("/1")); strings.Contains(tt.name, "ahead") {
				c.send(get("/2"))
			}
			resp := c.head()
			if got, err := io.ReadAll(resp.Body); resp.StatusCode != tt.status || string(got) != tt.body || !errors.Is(err, tt.err) || resp.Close != tt.closes {
				t.Errorf("%d %q, %v, close %v", resp.StatusCode, got, err, resp.Close)
			}
			if ct, server := resp.Header.Get("content-type"), resp.Header.Get("server"); tt.status >= 500 && (ct != "text/plain" || server != "lastcall") {
				t.Errorf("content-type %q, server %q; want text/plain and lastcall", ct, server)
			}
			c.wantEnd()
			awaitActivity(t, p, 0, 0)
		})
	}
}

func TestAppRefuses(t *testing.T) {
	t.Parallel()
	for _, protocol := range []Protocol{Auto, HTTP} {
		p, c := startClient(t, refused(t), protocol)
		c.send(get("/"))
		resp := c.response("GET")
		if got := bodyOf(resp); resp.StatusCode != 503 || got != "upstream connect error or disconnect/reset before headers. reset reason: remote connection failure" {
			t.Errorf("%v: %d %q", protocol, resp.StatusCode, got)
		}
		c.wantEnd()
		awaitActivity(t, p, 0, 0)
	}
	for _, protocol := range []Protocol{Auto, TCP} { // as without a sidecar, no FIN, which is an answer of no bytes
		for _, first := range []string{"", "\x01"} {
			c, err := net.Dial("tcp", startPipe(t, refused(t), protocol).Addr(0).String())
			if err == nil { // no reset has come yet
				if _, err = io.WriteString(c, first); err == nil { // each reports the reset once
					_, err = c.Read(make([]byte, 1))
				}
				_ = c.Close()
			}
			if !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%v, %q: %v; want a reset", protocol, first, err)
			}
		}
	}
}

// Half of a body that would end with the connection is not passed for the whole, whatever
// cuts it.
func TestHalfABodyUntilTheEnd(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		cut  func(p *Pipe, app net.Conn)
	}{
		{"the app resets", func(_ *Pipe, app net.Conn) { _ = app.(*net.TCPConn).SetLinger(0); _ = app.Close() }},
		{"the response takes too long", func(*Pipe, net.Conn) {}},
		{"the last call", func(p *Pipe, _ net.Conn) { _, _ = p.LastCall(ctx, 0) }},
		{"the pipe is killed", func(p *Pipe, _ net.Conn) { p.Kill() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			apps := make(chan net.Conn, 1)
			app := startApp(t, func(c net.Conn) {
				r := bufio.NewReader(c)
				readHead(r)
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\nhalf")
				apps <- c
				_, _ = io.Copy(io.Discard, r)
			})
			p := startPipe(t, app, HTTP, func(c *Config) {
				if tt.name == "the response takes too long" {
					c.ResponseTimeout = time.Second // enough for its beginning
				}
			})
			c := dialPipe(t, p, get("/"))
			resp := c.head()
			part(t, resp, len("half"))
			tt.cut(p, <-apps)
			if b, err := io.ReadAll(resp.Body); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%q, %v; want a reset", b, err)
			}
		})
	}
}

// An app's answer before the end of an upload reaches the client, which is
// still sending.
func TestEarlyAnswer(t *testing.T) {
	app := startApp(t, func(c net.Conn) {
		readHead(bufio.NewReader(c))
		_, _ = io.WriteString(c, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig")
	})
	p, c := startClient(t, app, HTTP)
	c.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n")
	go func() {
		for range 100 {
			if _, err := io.WriteString(c, strings.Repeat("x", 10000)); err != nil {
				return
			}
		}
	}()
	if resp := c.response("POST"); resp.StatusCode != 413 || bodyOf(resp) != "big" {
		t.Fatal(resp)
	}
	_ = c.Close()
	awaitActivity(t, p, 0, 0)
}

func TestClientGoesAway(t *testing.T) {
	_, p, c := startWaiting(t, get("/"))
	_ = c.SetLinger(0)
	_ = c.Close()
	awaitActivity(t, p, 0, 0)
}

// With no descriptor left, connections wait and are served later.
func TestFullDescriptorTable(t *testing.T) {
	if os.Getenv("PIPE_FEW_FILES") == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestFullDescriptorTable$", "-test.v")
		cmd.Env = append(os.Environ(), "PIPE_FEW_FILES=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	app := startHTTP(t, echo)
	p := startPipe(t, app, HTTP)
	var limit syscall.Rlimit
	must.Do(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	limit.Cur = 64
	must.Do(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	var fill []*os.File
	c := dialPipe(t, p)                   // its other end waits for a descriptor
	for failures := 0; failures < 1000; { // while it waits, accept4(2) holds a descriptor now and then
		f, err := os.Open("/dev/null")
		if err != nil {
			failures++
			runtime.Gosched()
			continue
		}
		fill = append(fill, f)
	}
	c.send(get("/"))
	d, errDial := net.Dial("tcp", p.Addr(0).String())
	if errDial == nil {
		t.Fatalf("the table is not full: %v", d)
	}
	for _, f := range fill {
		_ = f.Close()
	}
	if resp := c.response("GET"); resp.StatusCode != 200 && resp.StatusCode != 503 {
		t.Fatal(resp)
	}
	e := dialPipe(t, p)
	e.wantOK()
}
