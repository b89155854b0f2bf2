package envoy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/loadtest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

// h2 is a client that keeps one HTTP/2 connection, by prior knowledge.
func (r *running) h2() *http.Client {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	r.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: patience}
}

// Several streams of one connection are one that is busy; idle, it holds nothing.
func TestHTTP2(t *testing.T) {
	r := start(t)
	client := r.h2()
	got := make(chan string, 3)
	for range cap(got) {
		go func() {
			resp, err := client.Get("http://" + r.listen + "/slow")
			if err != nil {
				got <- err.Error()
				return
			}
			b, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			got <- fmt.Sprint(string(b), err)
		}()
	}
	for range cap(got) {
		<-r.app.requests
	}
	r.awaitActivity(1, 1)
	o := r.held()
	r.app.let()
	for range cap(got) {
		if answer := <-got; answer != "done<nil>" {
			t.Error(answer)
		}
	}
	o.want(t, drain.Clean)
}

// A listener that also takes what is no HTTP: what is none is busy while open.
func TestRawTCPOnAuto(t *testing.T) {
	r := start(t, func(o *Options) { o.Bootstrap.Inbound[0].Protocol = "auto" })
	idle := r.idle()
	r.awaitActivity(1, 0)
	idle.Ask("/slow")
	<-r.app.requests
	r.awaitActivity(1, 1)
	r.app.let()
	idle.Answer(t)
	r.awaitActivity(1, 0)
	raw := r.dial()
	if _, err := io.WriteString(raw, "\x00\x01 no HTTP\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if b, err := raw.R.ReadString('\n'); err != nil || !strings.HasPrefix(b, "HTTP/1.1 400") { // the app's own answer
		t.Fatal(b, err)
	}
	silent := r.dial() // server speaks first: TCP after the inspector's patience
	_ = idle.Close()
	r.awaitActivity(1, 1)
	o := r.held()
	_ = silent.Close()
	o.want(t, drain.Clean)
}

// Requests on IPv6 and on IPv4 by a listener for both are seen, though Envoy
// writes the colons of its name in another way.
func TestDualStack(t *testing.T) {
	_, port, _ := net.SplitHostPort(nettest.FreeAddress(t, "::")) // of IPv4, too
	admin := nettest.FreeAddress(t, "::1")
	r := start(t, func(o *Options) { o.Admin, o.Bootstrap.Inbound[0].Listen = admin, ":"+port })
	var conns []*loadtest.Kept
	for _, host := range []string{"127.0.0.1", "::1"} {
		r.listen = net.JoinHostPort(host, port)
		conns = append(conns, r.busy())
	}
	r.awaitActivity(2, 2)
	o := r.held()
	r.app.let()
	o.endsWith(conns...)
}

// A part of a request is a request.
func TestSlowRequest(t *testing.T) {
	for name, parts := range map[string][2]string{
		"a body": {"POST /upload HTTP/1.1\r\nHost: app\r\nContent-Length: 10\r\n\r\n01234", "56789"},
		"a head": {"GET / HTTP/1.1\r\nHos", "t: app\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t)
			c := r.dial()
			fmt.Fprint(c, parts[0])
			r.awaitActivity(1, 1)
			o := r.held()
			fmt.Fprint(c, parts[1])
			o.endsWith(c)
		})
	}
}

// An answer that its reader takes slowly is not over when Envoy has done with it.
func TestSlowReader(t *testing.T) {
	r := start(t)
	c := r.dial()
	c.Ask("/big")
	resp, err := http.ReadResponse(c.R, nil)
	must.Do(t, err)
	o := r.held()
	if n, err := io.Copy(io.Discard, resp.Body); n != bigAnswer || err != nil {
		t.Errorf("%d of %d bytes, %v", n, bigAnswer, err)
	}
	_ = c.Close()
	o.want(t, drain.Clean)
}

// Idle connections of every kind end with Envoy, by a FIN.
func TestIdleConnectionsHoldNothing(t *testing.T) {
	for _, blind := range []bool{false, true} {
		t.Run(fmt.Sprintf("blind=%v", blind), func(t *testing.T) {
			r := start(t, func(o *Options) { o.blind = blind })
			one := r.idle()
			client := r.h2()
			resp, err := client.Get("http://" + r.listen + "/")
			must.Do(t, err)
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			never := r.dial() // never sends anything
			r.awaitActivity(3, 0)
			r.terminate(soon).want(t, drain.Clean)
			for _, c := range []*loadtest.Kept{one, never} {
				if b, err := io.ReadAll(c.R); len(b) > 0 || err != nil {
					t.Errorf("an idle connection got %q, %v; want its end", b, err)
				}
			}
		})
	}
}

// gaps is the longest time in which no connection was served.
type gaps struct {
	mu      sync.Mutex
	last    time.Time
	longest time.Duration
	count   uint64
}

func (g *gaps) served() {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	g.count++
	g.longest, g.last = max(g.longest, now.Sub(g.last)), now
}

// Connections that come and go between two looks keep the drain from its end, whatever
// shows them: destroyed sockets, Envoy's counters, or, where neither does, the careful
// choice.
func TestShortConnections(t *testing.T) {
	cfg := drain.Config{
		MinimumDrain: 100 * time.Millisecond, QuietTime: 1500 * time.Millisecond,
		GracePeriod: 12 * time.Second, Margin: time.Second, PollInterval: 20 * time.Millisecond,
	}
	totals := []m{{"suffix": "downstream_cx_total"}, {"suffix": "downstream_rq_total"}}
	hide := func(config m) {
		config["stats_config"] = m{"stats_matcher": m{"exclusion_list": m{"patterns": totals}}}
	}
	for name, tt := range map[string]struct {
		blind, hidden, silent bool
		late                  bool
		fault                 string
	}{
		"destroyed sockets":                   {late: true},
		"destroyed sockets, counters hidden":  {hidden: true, late: true},
		"counters":                            {blind: true, late: true},
		"nothing":                             {blind: true, hidden: true, silent: true, fault: "unknown whether clients still connect"},
		"nothing, though clients are visible": {blind: true, hidden: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := configured(t, func(config m, _ func(name, direction, at string) m) {
				if tt.hidden {
					hide(config)
				}
			})
			r.o.blind = tt.blind
			stop := make(chan struct{})
			var clients sync.WaitGroup
			g := gaps{last: time.Now()}
			for range 2 {
				clients.Go(func() {
					for tick := time.NewTicker(40 * time.Millisecond); !tt.silent; {
						select {
						case <-tick.C:
						case <-stop:
							tick.Stop()
							return
						}
						if r.shortConnection() {
							g.served()
						}
					}
				})
			}
			report := r.terminate(cfg).want(t, drain.Clean)
			close(stop)
			clients.Wait()
			// A machine that did not let the clients run for the quiet time excuses an early end.
			if took := time.Duration(report.Phases[0].Took); took < cfg.DrainCap() && g.longest < cfg.QuietTime {
				t.Errorf("the drain ended after %v although clients came with gaps of no more than %v: %+v\n%s", took, g.longest, report, r.log)
			}
			if tt.late && report.Late < g.count/2 { // some came before the drain; each is a connection and, mostly, a request
				t.Errorf("late: %d of %d connections", report.Late, g.count)
			}
			if faults := strings.Join(report.Faults, "; "); !strings.Contains(faults, tt.fault) {
				t.Errorf("faults: %s; want %s", faults, tt.fault)
			}
		})
	}
}

// shortConnection is a connection with one request. It is false when it was refused.
func (r *running) shortConnection() bool {
	c, err := net.Dial("tcp", r.listen)
	if err != nil {
		return false
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: app\r\n\r\n"); err != nil {
		return false
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err == nil
}
