package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/accesslog"
)

// slowApp answers each request when more is closed, in two halves.
func slowApp(t *testing.T) (addr string, arrived chan struct{}, more chan struct{}) {
	arrived, more = make(chan struct{}, 8), make(chan struct{})
	return raw(t, func(_ int, c net.Conn, r *bufio.Reader) {
		if _, err := readRequest(r); err != nil {
			return
		}
		arrived <- struct{}{}
		<-more
		_, _ = io.WriteString(c, ok)
	}), arrived, more
}

// Without a load balancer in front, a signal makes the gateway complete its requests in flight, with Connection: close,
// and exit.
func TestStopFinishesWhatIsInFlight(t *testing.T) {
	addr, arrived, more := slowApp(t)
	g := start(t, setup{Endpoints: []string{addr}})
	idle, busy := dial(t, g.addr), dial(t, g.addr)
	say(t, busy, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	within(t, "request", arrived)
	say(t, idle, "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n") // answered by the gateway itself
	r := bufio.NewReader(idle)
	if resp, _ := readResponse(t, r); resp.Close {
		t.Error("Connection: close before the signal")
	}
	g.stop()
	if _, err := r.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("idle connection: %v, want EOF", err)
	}
	close(more)
	if resp, body := readResponse(t, bufio.NewReader(busy)); resp.StatusCode != 200 || body != "ok" || !resp.Close {
		t.Errorf("in flight: %s %q, closing %v", resp.Status, body, resp.Close)
	}
	if r := g.ended(t); r.Verdict != drain.Clean {
		t.Errorf("report %+v", r)
	}
	if c, err := net.Dial("tcp", g.addr); err == nil {
		_ = c.Close()
		t.Error("it still accepts")
	}
	g.access.until(t, " 200 - via_upstream ")
	if r := g.ended(t); r.Verdict != drain.Clean {
		t.Errorf("report %+v", r)
	}
}

func TestStopFinishesWhatIsInFlightHTTP2(t *testing.T) {
	addr, arrived, more := slowApp(t)
	g := start(t, setup{Endpoints: []string{addr}, Certificates: selfSigned(t)})
	c, url := g.client(t, true)
	got := make(chan string, 1)
	go func() {
		resp, err := c.Get(url)
		if err != nil {
			got <- err.Error()
			return
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		got <- fmt.Sprint(resp.Status, " ", string(body), err)
	}()
	within(t, "request", arrived)
	g.stop()
	g.log.until(t, "stop signal")
	close(more)
	if got := within(t, "response", got); got != "200 OK ok<nil>" {
		t.Error(got)
	}
	if r := g.ended(t); r.Verdict != drain.Clean {
		t.Errorf("report %+v", r)
	}
}

// short is a termination that makes its last call after 100 ms.
func short() Termination {
	return Termination{GracePeriod: 2 * time.Second, DrainTimeout: 100 * time.Millisecond, FailReadinessAfter: Never}
}

// What takes too long gets a last word that its protocol knows, and is in the report.
func TestLastCall(t *testing.T) {
	const plain, upgrade = "GET /slow HTTP/1.1\r\nHost: a\r\n\r\n", "GET /up HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"
	for _, tt := range []struct {
		name, request, answer string
		wants                 []string // in what the client gets
		logged                string
		open                  drain.Conversation
	}{
		{"no answer yet", plain, "", []string{"HTTP/1.1 503 ", "Connection: close", "\r\n\r\n" + accesslog.BodyLastCall}, " 503 DT last_call ", drain.Conversation{Protocol: "http/1.1", Request: "GET /slow", Ending: "503"}},
		{"half an answer", plain, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", []string{"HTTP/1.1 200 ", "half"}, " 200 DT last_call ", drain.Conversation{Protocol: "http/1.1", Request: "GET /slow", Ending: "truncated"}},
		{"an upgrade", upgrade, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", []string{"HTTP/1.1 101 "}, " 101 DT last_call ", drain.Conversation{Protocol: "x", Request: "GET /up", Ending: "fin"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			arrived := make(chan struct{}, 1)
			addr := raw(t, func(_ int, c net.Conn, r *bufio.Reader) {
				if _, err := readRequest(r); err != nil {
					return
				}
				_, _ = io.WriteString(c, tt.answer)
				arrived <- struct{}{}
				_, _ = r.ReadByte()
			})
			g := start(t, setup{Endpoints: []string{addr}, Termination: short()})
			c := dial(t, g.addr)
			say(t, c, tt.request)
			within(t, "request", arrived)
			if strings.HasPrefix(tt.answer, "HTTP/1.1 200") {
				b := make([]byte, 1)
				if _, err := io.ReadFull(c, b); err != nil { // the head is out
					t.Fatal(err)
				}
				tt.wants[0] = tt.wants[0][1:]
			}
			g.stop()
			got, err := io.ReadAll(c)
			if err != nil {
				t.Errorf("the client saw %v, want an orderly end", err)
			}
			for _, want := range tt.wants {
				if !strings.Contains(string(got), want) {
					t.Errorf("the client got %q, want %q in it", got, want)
				}
			}
			g.access.until(t, tt.logged)
			r := g.ended(t)
			if r.Verdict != drain.Cut || len(r.Open) != 1 {
				t.Fatalf("report %+v", r)
			}
			open := r.Open[0]
			open.Peer, open.Age = "", 0
			if open != tt.open {
				t.Errorf("report names %+v, want %+v", open, tt.open)
			}
		})
	}
}

// A second SIGTERM is the last call, at once.
func TestSecondSignal(t *testing.T) {
	addr, arrived, more := slowApp(t)
	defer close(more)
	g := start(t, setup{Endpoints: []string{addr}})
	c := dial(t, g.addr)
	say(t, c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	within(t, "request", arrived)
	g.stop()
	g.log.until(t, "There are still 1 active connections")
	g.signals <- drain.Terminate
	if resp, _ := readResponse(t, bufio.NewReader(c)); resp.StatusCode != 503 || !resp.Close {
		t.Errorf("got %s, closing %v", resp.Status, resp.Close)
	}
	if r := g.ended(t); r.Verdict != drain.Cut || time.Duration(r.Duration) > 10*time.Second {
		t.Errorf("report %+v", r)
	}
}

// readyNow is what /ready says.
func (r *running) readyNow(t *testing.T) string {
	t.Helper()
	resp, body := get(t, &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}, "http://"+r.admin+"/ready")
	return fmt.Sprint(resp.StatusCode, " ", strings.TrimSpace(body))
}

// Readiness lasts until the listener closes, or for FailReadinessAfter.
func TestReadiness(t *testing.T) {
	for _, tt := range []struct {
		name     string
		minimum  time.Duration
		fails    time.Duration
		log      string // after which /ready is requested
		want     string
		accepted bool
	}{
		{"no load balancer: as long as something is in flight", 0, Never, "There are still 1 active", "200 LIVE", true},
		{"a load balancer: still a fallback (KEP-1669)", time.Minute, Never, "then waiting for active connections", "200 LIVE", true},
		{"FailReadinessAfter: fails while it accepts", time.Minute, 0, "readiness fails after the configured delay", "503 DRAINING", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			addr, arrived, more := slowApp(t)
			g := start(t, setup{Endpoints: []string{addr}, Termination: Termination{GracePeriod: 2 * time.Minute, MinDrain: tt.minimum, FailReadinessAfter: tt.fails}})
			if got := g.readyNow(t); got != "200 LIVE" {
				t.Error(got)
			}
			c := dial(t, g.addr)
			say(t, c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			within(t, "request", arrived)
			g.stop()
			g.log.until(t, tt.log)
			if got := g.readyNow(t); got != tt.want {
				t.Error(got)
			}
			if c, err := net.Dial("tcp", g.addr); (err == nil) != tt.accepted {
				t.Errorf("accepted %v, want %v", err == nil, tt.accepted)
			} else if err == nil {
				_ = c.Close()
			}
			close(more)
			g.signals <- drain.Terminate
		})
	}
}

// notYet is a Source that never knows all, or cannot begin.
type notYet struct {
	err error
}

func (notYet) Pending() string { return "waiting for pods" }

func (n notYet) Run(ctx context.Context, _ func()) error {
	if n.err == nil {
		<-ctx.Done()
	}
	return n.err
}

// Before the source is synced no request is served, and probes get the reason.
func TestNotServingBeforeSynced(t *testing.T) {
	g, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	admin := closed(t)
	signals := make(chan drain.Signal)
	front := closed(t)
	done := make(chan error, 1)
	go func() {
		_, err := g.Run(t.Context(), RunOptions{HTTP: front, Admin: admin, Source: notYet{}, Termination: Termination{GracePeriod: time.Minute, FailReadinessAfter: Never}, Signals: signals})
		done <- err
	}()
	r := &running{admin: admin}
	for until := time.Now().Add(patience); ; { // until the admin server is up
		c, err := net.Dial("tcp", admin)
		if err == nil {
			_ = c.Close()
			break
		}
		if time.Now().After(until) {
			t.Fatal(err)
		}
	}
	if got := r.readyNow(t); got != "503 PRE_INITIALIZING: waiting for pods" {
		t.Error(got)
	}
	if c, err := net.Dial("tcp", front); err == nil {
		_ = c.Close()
		t.Error("it accepts")
	}
	signals <- drain.Terminate
	if err := within(t, "end", done); err != nil {
		t.Error(err)
	}
}
