package lastcall

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	dt "github.com/lastcall-dev/lastcall/drain/draintest"
	"github.com/lastcall-dev/lastcall/internal/must"
)

// pod is a server under Serve in this process, without the waits for load balancers.
type pod struct {
	address string
	signals chan drain.Signal
	ended   chan struct{}
	report  Report
	err     error
}

func serving(t *testing.T, server *http.Server, opts ...Option) *pod {
	t.Helper()
	ln := loopback(t)
	p := &pod{address: ln.Addr().String(), signals: make(chan drain.Signal, 4), ended: make(chan struct{})}
	server.ReadHeaderTimeout = patience
	opts = append([]Option{
		WithListener(ln), WithSignals(p.signals), WithMinimumDrain(0), WithQuietTime(0), WithIdleGrace(0),
		WithLogger(slog.New(slog.DiscardHandler)),
	}, opts...)
	go func() {
		defer close(p.ended)
		p.report, p.err = Serve(context.Background(), server, opts...)
	}()
	t.Cleanup(func() {
		select {
		case p.signals <- drain.QuitNow:
		default:
		}
		p.end(t)
	})
	return p
}

func (p *pod) end(t *testing.T) {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		t.Fatal("Serve does not return")
	}
}

func (p *pod) get(t *testing.T, head string) *bufio.Reader {
	t.Helper()
	c, err := net.Dial("tcp", p.address)
	must.Do(t, err)
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, head); err != nil {
		t.Fatal(err)
	}
	return bufio.NewReader(c)
}

// TestDraining: handlers of streams, of hijacked connections and of long polls end by themselves when the drain begins.
func TestDraining(t *testing.T) {
	for path, want := range map[string]string{"/events": "data: bye", "/upgrade": "bye", "/poll": "204 No Content"} {
		begun := make(chan struct{})
		p := serving(t, &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/events":
				_ = http.NewResponseController(w).Flush()
				close(begun)
				<-Draining(r.Context())
				_, _ = io.WriteString(w, "data: bye\n\n")
			case "/upgrade":
				c, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				close(begun)
				<-Draining(r.Context())
				_, _ = io.WriteString(c, "bye")
			default:
				close(begun)
				<-Draining(r.Context())
				w.WriteHeader(http.StatusNoContent)
			}
		})})
		in := p.get(t, "GET "+path+" HTTP/1.1\r\nHost: app\r\n\r\n")
		<-begun
		p.signals <- drain.Terminate
		all, err := io.ReadAll(in)
		p.end(t)
		if err != nil || !strings.Contains(string(all), want) || p.err != nil || p.report.Verdict != drain.Clean || p.report.Duration > drain.Millis(10*s) {
			t.Errorf("%s: %q %v; %+v %v", path, all, err, p.report, p.err)
		}
	}
	if Draining(t.Context()) != nil {
		t.Error("a channel for a context of no request")
	}
}

// TestRegisterOnShutdown: the functions are called once, before a last call, so that they can end hijacked connections.
func TestRegisterOnShutdown(t *testing.T) {
	var calls atomic.Int32
	hijacked := make(chan net.Conn, 1)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
		}
		hijacked <- c
	})}
	held := make(chan net.Conn, 1)
	server.RegisterOnShutdown(func() {
		calls.Add(1)
		_ = (<-held).Close()
	})
	p := serving(t, server)
	in := p.get(t, "GET / HTTP/1.1\r\nHost: app\r\n\r\n")
	held <- <-hijacked
	p.signals <- drain.Terminate
	if _, err := io.ReadAll(in); err != nil {
		t.Error(err)
	}
	p.end(t)
	if calls.Load() != 1 || p.err != nil || p.report.Verdict != drain.Clean {
		t.Errorf("%d calls; %+v %v", calls.Load(), p.report, p.err)
	}
}

// TestShutdownBySomeoneElse waits for the requests in flight, as net/http's does, and so does Serve. A SIGTERM for which the
// program's own handler calls Shutdown is not taken for two.
func TestShutdownBySomeoneElse(t *testing.T) {
	for _, withSignal := range []bool{false, true} {
		t.Run(fmt.Sprintf("SIGTERM %v", withSignal), func(t *testing.T) {
			begun, release := make(chan struct{}), make(chan struct{})
			var calls atomic.Int32
			server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				close(begun)
				<-release
				_, _ = io.WriteString(w, "whole")
			})}
			server.RegisterOnShutdown(func() { calls.Add(1) })
			p := serving(t, server)
			in := p.get(t, "GET / HTTP/1.1\r\nHost: app\r\n\r\n")
			<-begun
			shutDown := make(chan error, 1)
			go func() { shutDown <- server.Shutdown(t.Context()) }()
			if nc, err := net.Dial("tcp", p.address); err == nil { // until the listener is closed
				_, _ = nc.Read(make([]byte, 1))
				_ = nc.Close()
			}
			if withSignal {
				p.signals <- drain.Terminate
			}
			select {
			case err := <-shutDown:
				t.Errorf("Shutdown returns %v while a request is in flight", err)
			case <-p.ended:
				t.Errorf("Serve returns %v while a request is in flight", p.err)
			case <-time.After(100 * time.Millisecond):
			}
			close(release)
			if all, err := io.ReadAll(in); err != nil || !strings.HasSuffix(string(all), "whole") {
				t.Errorf("%q %v", all, err)
			}
			p.end(t)
			if err := <-shutDown; err != nil || calls.Load() != 1 {
				t.Errorf("Shutdown: %v; %d calls of RegisterOnShutdown's function", err, calls.Load())
			}
			if p.err != nil || p.report.Verdict != drain.Clean || p.report.Trigger != "shutdown" && !withSignal {
				t.Errorf("%+v %v", p.report, p.err)
			}
		})
	}
}

// TestServerClose: requests that the program cuts by the server's own Close are in the report, with and without a signal
// before it. Those of a client that has left are not.
func TestServerClose(t *testing.T) {
	for name, isSignalled := range map[string]bool{"serving": false, "draining": true} {
		t.Run(name, func(t *testing.T) {
			begun, release := make(chan struct{}, 2), make(chan struct{})
			server := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				begun <- struct{}{}
				if r.URL.Path == "/left" {
					<-r.Context().Done()
					begun <- struct{}{}
				}
				<-release
			})}
			p := serving(t, server)
			in := p.get(t, "GET /cut HTTP/1.1\r\nHost: app\r\n\r\n")
			<-begun
			left, err := net.Dial("tcp", p.address)
			must.Do(t, err)
			_, err = io.WriteString(left, "GET /left HTTP/1.1\r\nHost: app\r\n\r\n")
			must.Do(t, err)
			<-begun
			_ = left.Close()
			<-begun
			if isSignalled {
				p.signals <- drain.Terminate
			}
			_ = server.Close()
			if all, err := io.ReadAll(in); err == nil && len(all) > 0 {
				t.Errorf("the client gets %q", all)
			}
			close(release)
			p.end(t)
			if r := p.report; r.Verdict != drain.Cut || len(r.Open) != 1 || r.Open[0].Request != "GET /cut" || r.Open[0].Ending != "Server.Close" {
				t.Errorf("%+v", r)
			}
		})
	}
}

// TestSignalledBefore: a client that has connected before the program serves is answered, although SIGTERM has come, too.
func TestSignalledBefore(t *testing.T) {
	for range 50 {
		ln := loopback(t)
		c, err := net.Dial("tcp", ln.Addr().String())
		must.Do(t, err)
		_, err = io.WriteString(c, "GET / HTTP/1.1\r\nHost: app\r\n\r\n")
		must.Do(t, err)
		signals := make(chan drain.Signal, 1)
		signals <- drain.Terminate
		_, err = Serve(t.Context(), &http.Server{Handler: http.NotFoundHandler()}, WithListener(ln),
			WithSignals(signals), WithMinimumDrain(0), WithQuietTime(0), WithIdleGrace(0), WithLogger(slog.New(slog.DiscardHandler)))
		must.Do(t, err)
		if all, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(all), "HTTP/1.1 404") {
			t.Errorf("the client gets %q, %v", all, err)
		}
		_ = c.Close()
	}
}

// TestHalfHead: a request of which only a part of the head arrives ends after the idle grace, and is reported as one that
// met the end of an idle connection.
func TestHalfHead(t *testing.T) {
	ln := readListener{loopback(t).(*net.TCPListener), make(chan struct{}, 1)}
	p := serving(t, &http.Server{}, WithListener(ln))
	p.address = ln.Addr().String()
	in := p.get(t, "GET / HTTP/1.1\r\nHost: app\r\n")
	<-ln.read
	p.signals <- drain.Terminate
	if all, err := io.ReadAll(in); err != nil || len(all) > 0 {
		t.Errorf("the client gets %q, %v", all, err)
	}
	p.end(t)
	if r := p.report; r.Verdict != drain.Clean || r.Raced != 1 || len(r.Open) > 0 {
		t.Errorf("%+v", r)
	}
}

// readListener reports that the server has read from a connection.
type readListener struct {
	*net.TCPListener
	read chan struct{}
}

func (l readListener) Accept() (net.Conn, error) {
	c, err := l.AcceptTCP()
	return &readConn{c, l.read}, err
}

type readConn struct {
	*net.TCPConn
	read chan struct{}
}

func (c *readConn) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	select {
	case c.read <- struct{}{}:
	default:
	}
	return n, err
}

// TestSideServer: requests of a side server do not delay the end, and are answered until it.
func TestSideServer(t *testing.T) {
	ln := loopback(t) // its port has no listener at the next address, nor gets one from another test
	defer ln.Close()
	address := strings.Replace(ln.Addr().String(), "127.0.0.1", "127.0.0.2", 1)
	scraping := make(chan struct{}, 1)
	side := &http.Server{Addr: address, ReadHeaderTimeout: patience, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/trace" {
			scraping <- struct{}{}
			<-r.Context().Done() // it would hold up any drain that counts it
			return
		}
		_, _ = io.WriteString(w, "metrics")
	})}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	scrape := func(path string) string {
		resp, err := client.Get("http://" + address + path)
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		all, _ := io.ReadAll(resp.Body)
		return string(all)
	}
	begun := make(chan struct{})
	p := serving(t, &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(begun)
		<-Draining(r.Context())
		if got := scrape("/metrics"); got != "metrics" {
			t.Errorf("a scrape in the drain: %s", got)
		}
	})}, WithSideServer(side), WithGracePeriod(10*s))
	for until := time.Now().Add(patience); scrape("/metrics") != "metrics"; {
		if time.Now().After(until) {
			t.Fatal("the side server is not served")
		}
	}
	go scrape("/trace")
	<-scraping
	in := p.get(t, "GET / HTTP/1.1\r\nHost: app\r\n\r\n")
	<-begun
	p.signals <- drain.Terminate
	if _, err := io.ReadAll(in); err != nil {
		t.Error(err)
	}
	p.end(t)
	if p.err != nil || p.report.Verdict != drain.Clean || p.report.Duration > drain.Millis(5*s) {
		t.Errorf("%+v %v", p.report, p.err)
	}
	if got := scrape("/metrics"); got == "metrics" {
		t.Error("it is served after the end")
	}
}

// TestBackground: the context of the functions ends when the last conversation has ended, not at SIGTERM.
func TestBackground(t *testing.T) {
	failure := errors.New("the pool is broken")
	busy := []dt.Client{dt.Get("/delay/10", 58*s, 10*s)}
	for name, tt := range map[string]struct {
		f       func(context.Context) error
		signals []signalAt
		stops   time.Duration // the functions' context
		ends    time.Duration // Run
		trigger string
		err     string
	}{
		"until the last conversation": {
			f: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, signals: []signalAt{{60 * s, drain.Terminate}},
			stops: 68 * s, ends: 68 * s, trigger: "SIGTERM",
		},
		"Run waits for it": {
			f: func(ctx context.Context) error { <-ctx.Done(); time.Sleep(3 * s); return nil }, signals: []signalAt{{60 * s, drain.Terminate}},
			stops: 68 * s, ends: 71 * s, trigger: "SIGTERM",
		},
		"but not beyond SIGKILL": {
			f: func(ctx context.Context) error { <-ctx.Done(); time.Sleep(time.Hour); return nil }, signals: []signalAt{{60 * s, drain.Terminate}},
			stops: 68 * s, ends: 90*s - stopMargin, trigger: "SIGTERM", err: "a function of WithBackground has not returned before the end of the grace period",
		},
		"its error drains": {
			f: func(context.Context) error { time.Sleep(60 * s); return failure }, stops: 68 * s, ends: 68 * s,
			trigger: drain.BackgroundFailed.String(), err: failure.Error(),
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				plane := dt.New(dt.Script{Clients: busy})
				defer plane.Stop()
				signals := make(chan drain.Signal)
				for _, sig := range tt.signals {
					time.AfterFunc(sig.at, func() { signals <- sig.signal })
				}
				began, stopped := time.Now(), make(chan time.Duration, 1)
				watch := func(ctx context.Context) error {
					<-ctx.Done()
					stopped <- time.Since(began)
					return nil
				}
				r, err := Run(t.Context(), plane, WithSignals(signals), WithLogger(slog.New(slog.DiscardHandler)), WithBackground(tt.f, watch))
				if took := time.Since(began); took != tt.ends || r.Trigger != tt.trigger || r.Verdict != drain.Clean {
					t.Errorf("%s by %s after %v, want %s after %v", r.Verdict, r.Trigger, took, tt.trigger, tt.ends)
				}
				if (err == nil) != (tt.err == "") || err != nil && err.Error() != "lastcall: "+tt.err {
					t.Errorf("%v, want %q", err, tt.err)
				}
				if at := <-stopped; at != tt.stops {
					t.Errorf("the context ends after %v, want %v", at, tt.stops)
				}
				time.Sleep(2 * time.Hour)
			})
		})
	}
}

// TestBrokerFails: a loop whose broker fails at once waits, a job that receives a message never does.
func TestBrokerFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewWorker("orders")
		var fails atomic.Bool
		var failed, handled atomic.Int32
		fails.Store(true)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for w.Do(func(job *Job) {
				if _ = job.Receiving(); fails.Load() {
					failed.Add(1)
					return // as the loop of the documentation
				}
				job.SetName("message")
				if handled.Add(1) == 10_000 {
					fails.Store(true)
				}
			}) {
			}
		}()
		time.Sleep(10 * s)
		if n := failed.Load(); n < 50 || n > 200 {
			t.Errorf("%d calls of a broker that fails, in 10 s", n)
		}
		fails.Store(false)
		began := time.Now()
		time.Sleep(longestPause + ms)
		if n := handled.Load(); n != 10_000 || time.Since(began) > longestPause+ms {
			t.Errorf("%d messages handled after %v", n, time.Since(began))
		}
		began = time.Now()
		w.Kill()
		<-done
		if took := time.Since(began); took > 0 {
			t.Errorf("a worker that waits ends after %v", took)
		}
	})
}
