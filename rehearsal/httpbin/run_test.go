package httpbin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/loadtest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

const patience = 20 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// app runs with a request in flight: a /drip whose head has come, and which
// has its last byte some seconds later.
func app(t *testing.T, onTerm OnTerm, seconds int) (addr string, stop context.CancelFunc, done <-chan error, inFlight *http.Response) {
	t.Helper()
	ln := nettest.Listen(t, "127.0.0.1:0")
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, Options{Listener: ln, OnTerm: onTerm}) }()
	c := loadtest.Keep(t, ln.Addr().String(), patience)
	c.Ask(fmt.Sprintf("/drip?delay=0&duration=%d&numbytes=2", seconds))
	resp, err := http.ReadResponse(c.R, nil)
	must.Do(t, err)
	return ln.Addr().String(), cancel, ended, resp
}

// Requests in flight are finished, of HTTP/1.1 and of HTTP/2, and no connection stays.
func TestCloseListenerAndDrainFinishWhatIsInFlight(t *testing.T) {
	for _, onTerm := range []OnTerm{CloseListener, Drain} {
		t.Run(string(onTerm), func(t *testing.T) {
			addr, stop, done, resp := app(t, onTerm, 1)
			tr := &http.Transport{Protocols: new(http.Protocols)}
			defer tr.CloseIdleConnections()
			tr.Protocols.SetUnencryptedHTTP2(true)
			answer, err := (&http.Client{Transport: tr}).Get("http://" + addr + "/drip?delay=0&duration=1&numbytes=2")
			must.Do(t, err)
			other := loadtest.Keep(t, addr, patience)
			other.Ask("/status/204")
			other.Answer(t)
			stop()
			if _, err := other.R.ReadByte(); !errors.Is(err, io.EOF) {
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
	_, stop, done, resp := app(t, Exit, 10)
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
