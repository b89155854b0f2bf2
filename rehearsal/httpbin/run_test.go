package httpbin

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// app runs with a request in flight: a /drip whose head has come, and which
// has its last byte a second later.
func app(t *testing.T, onTerm OnTerm) (addr string, stop context.CancelFunc, done <-chan error, inFlight *http.Response) {
	t.Helper()
	ln := nettest.Listen(t, "127.0.0.1:0")
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, Options{Listener: ln, OnTerm: onTerm}) }()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := io.WriteString(c, "GET /drip?delay=0&duration=1&numbytes=2 HTTP/1.1\r\nHost: app\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	return ln.Addr().String(), cancel, ended, resp
}

// idle opens a connection that has had one answer and waits for more.
func idle(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := io.WriteString(c, "GET /status/204 HTTP/1.1\r\nHost: app\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4096)
	var got string
	for !strings.HasSuffix(got, "\r\n\r\n") {
		n, err := c.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		got += string(buf[:n])
	}
	return c
}

// Requests in flight are finished, of HTTP/1.1 and of HTTP/2, and no connection stays.
func TestCloseListenerAndDrainFinishWhatIsInFlight(t *testing.T) {
	for _, onTerm := range []OnTerm{CloseListener, Drain} {
		t.Run(string(onTerm), func(t *testing.T) {
			addr, stop, done, resp := app(t, onTerm)
			tr := &http.Transport{Protocols: new(http.Protocols)}
			defer tr.CloseIdleConnections()
			tr.Protocols.SetUnencryptedHTTP2(true)
			answer, err := (&http.Client{Transport: tr}).Get("http://" + addr + "/drip?delay=0&duration=1&numbytes=2")
			if err != nil {
				t.Fatal(err)
			}
			other := idle(t, addr)
			stop()
			if _, err := other.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Errorf("idle connection: %v, want EOF", err)
			}
			if c, err := net.Dial("tcp", addr); err == nil {
				_ = c.Close()
				t.Error("the listener still accepts")
			}
			for _, resp := range []*http.Response{resp, answer} {
				if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "**" {
					t.Errorf("%s in flight: %q, %v", resp.Proto, body, err)
				}
			}
			if err := <-done; err != nil || answer.ProtoMajor != 2 {
				t.Errorf("end: %v; %s", err, answer.Proto)
			}
		})
	}
}

func TestExitFinishesNothing(t *testing.T) {
	_, stop, done, resp := app(t, Exit)
	stop()
	if err := <-done; err != nil {
		t.Errorf("end: %v", err)
	}
	if body, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("in flight: whole %q, want it cut", body)
	}
}

func TestCloseListenerWithNothingOpen(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Run(ctx, Options{Listen: "127.0.0.1:0", OnTerm: CloseListener}); err != nil {
		t.Error(err)
	}
}

func TestBadOptions(t *testing.T) {
	err := Run(t.Context(), Options{Listen: "nowhere"})
	if want := `listen on "nowhere" (must be host:port)`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}
