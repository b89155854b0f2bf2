package sockets

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/hook"
	"github.com/lastcall-dev/lastcall/internal/sidecar/loadtest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
)

func TestMain(m *testing.M) {
	if port := os.Getenv("LASTCALL_TEST_WATCH"); port != "" {
		watchAlone(port)
		return
	}
	goleak.VerifyTestMain(m)
}

// The settings of real tests: no minimum drain, and an idle grace as short as a busy
// machine allows.
const realGrace = 400 * time.Millisecond

func realConfig() drain.Config {
	c := drain.DefaultConfig()
	c.MinimumDrain, c.QuietTime, c.IdleGrace = 0, 0, realGrace
	return hook.Within(c, doubtTime+5*second)
}

// preStop is a Wait that has not returned.
type preStop struct {
	t    *testing.T
	done chan drain.Report
}

func startHook(t *testing.T, port uint16, change func(*Options)) *preStop {
	t.Helper()
	h := &preStop{t, make(chan drain.Report, 1)}
	waits := make(waiting)
	o := Options{Ports: []uint16{port}, IdleGrace: realGrace, Log: slog.New(waits)}
	if change != nil {
		change(&o)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		r, err := hook.Wait(ctx, New(o), realConfig(), nil, o.Log)
		if err != nil {
			t.Error(err)
		}
		h.done <- r
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	<-waits
	return h
}

// waiting is a log that is closed when the hook waits for requests in flight.
type waiting chan struct{}

func (w waiting) Enabled(context.Context, slog.Level) bool { return true }
func (w waiting) WithAttrs([]slog.Attr) slog.Handler       { return w }
func (w waiting) WithGroup(string) slog.Handler            { return w }

func (w waiting) Handle(_ context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "minimum drain complete") {
		close(w)
	}
	return nil
}

func (h *preStop) isOver() bool { return len(h.done) > 0 }

// ends waits for the hook's end and checks its verdict.
func (h *preStop) ends(want ...drain.Verdict) drain.Report {
	h.t.Helper()
	r := <-h.done
	if !slices.Contains(want, r.Verdict) {
		h.t.Errorf("%s; want %s: %+v", r.Verdict, want, r)
	}
	return r
}

// server is a Go server whose handlers are released by the test.
type server struct {
	address  string
	port     uint16
	requests chan string   // a request has come
	free     chan struct{} // lets one handler continue
}

func startServer(t *testing.T, address string) *server {
	t.Helper()
	ln, err := net.Listen("tcp", address)
	if err != nil {
		t.Skip(err)
	}
	s := &server{
		address: ln.Addr().String(), port: ln.Addr().(*net.TCPAddr).AddrPort().Port(),
		requests: make(chan string, 100), free: make(chan struct{}),
	}
	s.address = strings.Replace(s.address, "[::]", "127.0.0.1", 1)
	nettest.Serve(t, ln, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests <- r.URL.Path
		switch r.URL.Path {
		case "/slow":
			<-s.free
		case "/upload":
			_, _ = io.Copy(io.Discard, r.Body)
		case "/tokens":
			for range 3 {
				_, _ = io.WriteString(w, "token\n")
				_ = http.NewResponseController(w).Flush()
				time.Sleep(slowAfter / 2)
			}
			s.requests <- "three tokens"
			<-s.free
		case "/download":
			_, _ = w.Write(make([]byte, 16<<20))
		}
		_, _ = io.WriteString(w, "done")
	}))
	return s
}

func dial(t *testing.T, address string) *loadtest.Kept {
	t.Helper()
	return loadtest.Keep(t, address, time.Minute)
}

// requested is a connection whose request has come to the app.
func (s *server) requested(t *testing.T, path string) *loadtest.Kept {
	t.Helper()
	c := dial(t, s.address)
	c.Ask(path)
	<-s.requests
	return c
}

// stays fails when the hook ends although a client waits: far longer than any
// grace of the test.
func (h *preStop) stays() {
	h.t.Helper()
	select {
	case r := <-h.done:
		h.t.Fatalf("it did not wait: %+v", r)
	case <-time.After(3 * realGrace):
	}
}

// It waits for a request, whatever the server listens on, and not for the pool
// next to it.
func TestRealRequest(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0", ":0"} {
		t.Run(address, func(t *testing.T) {
			t.Parallel()
			if address == "[::1]:0" { // 127.0.0.1 may have another test's connections at the port that the kernel chooses
				address = nettest.FreeAddress(t, "::1")
			}
			s := startServer(t, address)
			for range 5 { // a pool: quickly answered, in one jiffy of the kernel's
				c := dial(t, s.address)
				for range 5 {
					c.Ask("/")
					c.Answer(t)
					<-s.requests
				}
			}
			c := s.requested(t, "/")
			c.Answer(t)
			c.Ask("/slow")
			<-s.requests
			h := startHook(t, s.port, nil)
			h.stays()
			s.free <- struct{}{}
			c.Answer(t)
			_ = c.Close()
			closed := time.Now()
			r := h.ends(drain.Assumed) // the pool
			if lag := time.Since(closed); lag > hunchTime+second {
				t.Errorf("ended %v after the last answer", lag)
			}
			if !slices.ContainsFunc(r.HeldBy, func(held drain.Conversation) bool { return held.Peer == c.LocalAddr().String() }) {
				t.Errorf("held by %+v; want %v", r.HeldBy, c.LocalAddr())
			}
		})
	}
}

func TestRealUpload(t *testing.T) {
	t.Parallel()
	s := startServer(t, "127.0.0.1:0")
	c := dial(t, s.address)
	fmt.Fprint(c, "POST /upload HTTP/1.1\r\nHost: app\r\nContent-Length: 10\r\n\r\n")
	<-s.requests
	h := startHook(t, s.port, nil)
	for range 2 { // the pauses are longer than the idle grace
		fmt.Fprint(c, "12345")
		if h.isOver() {
			t.Fatal("it did not wait")
		}
		h.staysUnless(c)
	}
	c.Answer(t)
	_ = c.Close()
	h.ends(drain.Clean)
}

// staysUnless is stays, but the last piece of an upload is answered.
func (h *preStop) staysUnless(c *loadtest.Kept) {
	h.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(3 * realGrace))
	defer func() { _ = c.SetReadDeadline(time.Time{}) }()
	if _, err := c.R.Peek(1); err == nil {
		return
	}
	if h.isOver() {
		h.t.Fatal("it did not wait")
	}
}

// The answer of a server that has long finished, and has closed its end, is waited
// for until the client has it.
func TestRealDownload(t *testing.T) {
	t.Parallel()
	s := startServer(t, "127.0.0.1:0")
	c := dial(t, s.address)
	fmt.Fprint(c, "GET /download HTTP/1.1\r\nHost: app\r\nConnection: close\r\n\r\n")
	<-s.requests
	if _, err := c.R.Peek(1); err != nil {
		t.Fatal(err)
	}
	h := startHook(t, s.port, nil)
	h.stays()
	c.Answer(t)
	h.ends(drain.Clean, drain.Assumed) // the server may be late to close its end
}

// On HTTP/2 a waiting client is not visible: the configuration decides.
func TestRealOpaque(t *testing.T) {
	t.Parallel()
	s := startServer(t, "127.0.0.1:0")
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	t.Cleanup(transport.CloseIdleConnections)
	get := func(path string) error {
		resp, err := (&http.Client{Transport: transport}).Get("http://" + s.address + path)
		if err != nil {
			return err
		}
		if resp.ProtoMajor != 2 {
			t.Errorf("%s", resp.Proto)
		}
		_, err = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		return err
	}
	answered := make(chan error, 1)
	go func() { answered <- get("/slow") }()
	<-s.requests
	if err := get("/"); err != nil { // its answer hides that the other has none
		t.Fatal(err)
	}
	h := startHook(t, s.port, func(o *Options) { o.OpaquePorts = []uint16{s.port} })
	h.stays()
	s.free <- struct{}{}
	if err := <-answered; err != nil {
		t.Error(err)
	}
	if h.isOver() {
		t.Error("it did not wait for the open connection")
	}
	transport.CloseIdleConnections()
	h.ends(drain.Clean)
}

// A response that has come in pieces and pauses is waited for, whether or not its pieces
// came before the hook.
func TestRealPausedStream(t *testing.T) {
	t.Parallel()
	s := startServer(t, "127.0.0.1:0")
	before := s.requested(t, "/tokens")
	<-s.requests
	during := s.requested(t, "/tokens")
	h := startHook(t, s.port, func(o *Options) { o.StreamPause = time.Hour })
	<-s.requests
	h.stays()
	for range 2 {
		s.free <- struct{}{}
	}
	for _, c := range []*loadtest.Kept{before, during} {
		c.Answer(t)
		_ = c.Close()
	}
	h.ends(drain.Clean)
}

func TestRealIgnoredAndUnheard(t *testing.T) {
	t.Parallel()
	s := startServer(t, "127.0.0.1:0")
	c := s.requested(t, "/slow")
	o := Options{Ports: []uint16{s.port}, Log: quiet()}
	o.IgnoreFrom = append(o.IgnoreFrom, mustPrefix("127.0.0.0/8"))
	r, err := hook.Wait(t.Context(), New(o), realConfig(), nil, o.Log)
	must.Do(t, err)
	if r.Verdict != drain.Clean || len(r.HeldBy) > 0 {
		t.Errorf("%+v", r)
	}
	// Where there is no sock_diag, open connections are busy.
	k := thisKernel
	k.open = func() (table, error) { return nil, syscall.EPROTONOSUPPORT }
	k.watch = func([]uint16) (sockdiag.Reports, error) { return nil, syscall.EPROTONOSUPPORT }
	o.IgnoreFrom = nil
	p := newPlane(o, k)
	if a, err := p.Activity(t.Context()); err != nil || a.Busy != 1 || a.Connections != 1 {
		t.Errorf("%+v, %v", a, err)
	}
	if ports, err := p.Listening(); err != nil || len(ports) != 1 {
		t.Errorf("listening: %v, %v", ports, err)
	}
	s.free <- struct{}{}
	c.Answer(t)
}

// watchAlone is this test as another user.
func watchAlone(port string) {
	n, _ := strconv.Atoi(port)
	p := New(Options{Ports: []uint16{uint16(n)}, Log: quiet()})
	_ = p.Drain(context.Background())
	a, err := p.Activity(context.Background())
	blind := p.watch.Reports == nil
	p.Kill()
	_ = json.NewEncoder(os.Stdout).Encode(map[string]any{"activity": a, "error": err, "blind": blind, "poor": p.o.Opaque, "uid": os.Getuid()})
}

// It needs no right at all: not to be root, no capability.
func TestUnprivileged(t *testing.T) {
	t.Parallel()
	s := startServer(t, "127.0.0.1:0")
	c := s.requested(t, "/slow")
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{"LASTCALL_TEST_WATCH=" + strconv.Itoa(int(s.port))}
	cmd.Dir = "/"
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	out, err := cmd.Output()
	var got struct {
		Activity    drain.Activity
		Blind, Poor bool
		UID         int
	}
	if err != nil || json.Unmarshal(out, &got) != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got.UID == 0 || got.Activity.Busy != 1 || got.Blind || got.Poor {
		t.Errorf("%s", out)
	}
	s.free <- struct{}{}
	c.Answer(t)
}
