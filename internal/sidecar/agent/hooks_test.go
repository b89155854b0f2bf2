package agent

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/meshconfig"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

// TestPresences counts the ends of app containers that come after the termination has begun, and waits for all.
func TestPresences(t *testing.T) {
	for _, tt := range []struct {
		name       string
		containers int
		ends       []time.Duration // of each presence, from the termination's beginning
		gone       time.Duration   // 0: not known
	}{
		{"one", 1, []time.Duration{20 * time.Second}, 20 * time.Second},
		{"none has been left", 1, nil, 0},
		{"one was restarted before, and lives", 1, []time.Duration{-time.Second}, 0},
		{"one was restarted before, and ends now", 1, []time.Duration{-time.Second, 5 * time.Second}, 5 * time.Second},
		{"two", 2, []time.Duration{5 * time.Second, 9 * time.Second}, 9 * time.Second},
		{"one of two cannot be seen", 2, []time.Duration{5 * time.Second}, 0},
		{"more than were expected", 1, []time.Duration{5 * time.Second, 9 * time.Second}, 9 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := new(presences)
				for _, end := range tt.ends {
					p.Set(func() { p.alive++ })
					time.AfterFunc(time.Minute+end, func() { p.Set(func() { p.alive--; p.ended++ }) })
				}
				time.Sleep(time.Minute)
				p.begin()
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				err := p.awaitGone(ctx, tt.containers)
				if took := time.Since(began); tt.gone == 0 && err == nil || tt.gone > 0 && (err != nil || took != tt.gone) {
					t.Errorf("%v after %v, want %v", err, took, tt.gone)
				}
			})
		})
	}
}

// TestPresent is a connection that ends with its process, whatever that was about to say.
func TestPresent(t *testing.T) {
	a := &agent{phases: new(phases)}
	s := &status{a: a}
	ln := nettest.Listen(t, "127.0.0.1:0")
	nettest.Serve(t, ln, own(s.present))
	a.presences.begin()
	c, err := net.Dial("tcp", ln.Addr().String())
	must.Do(t, err)
	fmt.Fprint(c, "POST /present HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
	if line := make([]byte, 12); !isRead(c, line) || string(line) != "HTTP/1.1 200" {
		t.Fatalf("%q", line)
	}
	gone := make(chan error, 1)
	go func() { gone <- a.presences.awaitGone(t.Context(), 1) }()
	select {
	case err := <-gone:
		t.Fatalf("gone while it is there: %v", err)
	default:
	}
	_ = c.Close()
	if err := <-gone; err != nil {
		t.Error(err)
	}
	a.presences.end()
	a.presences.end()
}

func isRead(c net.Conn, b []byte) bool {
	_, err := io.ReadFull(c, b)
	return err == nil
}

// appMain is an app with a listener, until its standard input ends.
func appMain() {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer ln.Close()
	fmt.Println("up")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// The app is seen by its sockets, before it comes, while it is there, and when it
// has gone.
func TestAwaitAppGone(t *testing.T) {
	n := nettest.New(t)
	result := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		result <- n.Pod.Do(func() error { return awaitAppGone(ctx, 50*time.Millisecond, false) })
	}()
	still := func(when string) {
		t.Helper()
		select {
		case err := <-result:
			t.Fatalf("%s: %v", when, err)
		case <-time.After(150 * time.Millisecond): // longer than it would have to be quiet
		}
	}
	still("before the app has come")

	app := exec.Command(os.Args[0])
	app.Env = append(os.Environ(), "AGENT_TEST_APP=1")
	in, _ := app.StdinPipe()
	out, _ := app.StdoutPipe()
	must.Do(t, n.Pod.Start(app))
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	still("while the app is there")
	_ = in.Close()
	_ = app.Wait()
	select {
	case err := <-result:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("its end is not seen")
	}

	cancel()
	if err := awaitAppGone(ctx, time.Hour, true); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestPresenceWanted: an app's hook leaves a process in its container in each phase in which it returns because the pod
// ends; also while the app still has to end its own connections.
func TestPresenceWanted(t *testing.T) {
	for _, tt := range []struct {
		phase   drain.Phase
		sidecar Sidecar
		want    bool
	}{
		{drain.Finishing, ClassicSidecar, true}, {drain.Drained, ClassicSidecar, true}, {drain.Done, ClassicSidecar, true},
		{drain.Finishing, NativeSidecar, false}, {drain.Done, NativeSidecar, false},
	} {
		a := &agent{phases: new(phases), outbound: new(outboundProxy)}
		a.Settings, a.Pod.Sidecar = new(meshconfig.Settings), tt.sidecar
		a.phases.phase = tt.phase
		ln := nettest.Listen(t, "127.0.0.1:0")
		nettest.Serve(t, ln, own((&status{a: a}).wait))
		resp, err := http.Post("http://"+ln.Addr().String()+"/wait", "", nil)
		must.Do(t, err)
		_ = resp.Body.Close()
		if got := resp.Header.Get(HeaderPresence) != ""; resp.StatusCode != http.StatusOK || got != tt.want {
			t.Errorf("%v, %v: %s, presence wanted: %v; want %v", tt.phase, tt.sidecar, resp.Status, got, tt.want)
		}
	}
}
