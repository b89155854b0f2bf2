package envoy

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/loadtest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/logs/logstest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
)

func TestMain(m *testing.M) {
	playPart()
	flag.Parse()
	_ = flag.Set("test.parallel", "16") // those that are parallel wait for deadlines
	goleak.VerifyTestMain(m)
}

// patience bounds every wait of these tests. A real Envoy needs half a minute to start
// where sixteen of them share two busy cores.
const patience = time.Minute

// app answers /slow when it is released, everything else at once, and echoes what
// is no HTTP.
type app struct {
	address  string
	requests chan struct{}
	free     chan struct{}
	once     sync.Once
}

func (a *app) let() { a.once.Do(func() { close(a.free) }) }

func startApp(t *testing.T) *app {
	t.Helper()
	ln := nettest.Listen(t, "127.0.0.1:0")
	a := &app{address: ln.Addr().String(), requests: make(chan struct{}, 100), free: make(chan struct{})}
	nettest.Serve(t, ln, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/upload":
			a.requests <- struct{}{}
			_, _ = io.Copy(io.Discard, r.Body)
		case "/big":
			_, _ = w.Write(make([]byte, bigAnswer))
			return
		case "/slow":
			a.requests <- struct{}{}
			select {
			case <-a.free:
			case <-r.Context().Done():
			}
		}
		fmt.Fprint(w, "done")
	}))
	t.Cleanup(a.let)
	return a
}

// running is a real Envoy under test.
type running struct {
	*Plane
	t      *testing.T
	app    *app
	listen string
	log    *logstest.Buffer
	access string
}

func start(t *testing.T, change ...func(*Options)) *running {
	t.Helper()
	program := peers.Need(t, "envoy")
	r := &running{t: t, app: startApp(t), listen: nettest.FreeAddress(t, "127.0.0.1"), log: &logstest.Buffer{}}
	r.access = filepath.Join(t.TempDir(), "access.log")
	o := Options{
		Admin: nettest.FreeAddress(t, "127.0.0.1"), Path: program, DrainTime: 45 * time.Second, Concurrency: 1,
		Bootstrap: Bootstrap{Inbound: []Route{{r.listen, r.app.address, "http"}}, AccessLog: r.access},
		Stdout:    r.log,
		Stderr:    r.log,
		Log:       slog.New(slog.NewJSONHandler(r.log, nil)),
	}
	for _, f := range change {
		f(&o)
	}
	p, err := Start(context.Background(), o)
	if err != nil {
		t.Fatalf("%v\n%s", err, r.log)
	}
	r.Plane = p
	t.Cleanup(p.Shut)
	return r
}

func (r *running) dial() *loadtest.Kept {
	r.t.Helper()
	return loadtest.Keep(r.t, r.listen, patience)
}

// idle is a connection whose request has been answered.
func (r *running) idle() *loadtest.Kept {
	r.t.Helper()
	c := r.dial()
	c.Ask("/")
	c.Answer(r.t)
	return c
}

// wantCloses has a new client's request answered, and checks whether the response announces the close.
func (r *running) wantCloses(want bool) *loadtest.Kept {
	r.t.Helper()
	c := r.dial()
	c.Ask("/")
	if resp, body := c.Answer(r.t); resp.Close != want || body != "done" {
		r.t.Errorf("%s: %v %q; want Connection: close %v", r.listen, resp, body, want)
	}
	return c
}

// busy is a connection with a request that the app does not answer yet.
func (r *running) busy() *loadtest.Kept {
	r.t.Helper()
	c := r.dial()
	c.Ask("/slow")
	<-r.app.requests
	return c
}

// bigAnswer is more than the kernel and Envoy take without a reader's help.
const bigAnswer = 32 << 20

// awaitActivity waits for an activity that is certain.
func (r *running) awaitActivity(connections, busy int) {
	r.t.Helper()
	polltest.NoError(r.t, func() error {
		a, err := r.Activity(context.Background())
		if err != nil || !a.Known || a.Connections != connections || a.Busy != busy {
			return fmt.Errorf("activity %+v, %w; want %d connections, %d busy\n%s", a, err, connections, busy, r.log)
		}
		return nil
	})
}

func (r *running) wantGone() {
	r.t.Helper()
	select {
	case <-r.Exited():
	case <-time.After(patience):
		r.t.Fatalf("Envoy is still there\n%s", r.log)
	}
}

var discard = slog.New(slog.DiscardHandler)

func logTo(b *logstest.Buffer) *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }

func (r *running) wantLogged(lines int) {
	r.t.Helper()
	if b, err := os.ReadFile(r.access); err != nil || bytes.Count(b, []byte("\n")) != lines {
		r.t.Errorf("access log: %v, want %d lines:\n%s", err, lines, b)
	}
}
