package envoy

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
)

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
		MinimumDrain: 100 * time.Millisecond, QuietTime: 1500 * time.Millisecond, QuietCap: 4 * time.Second,
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
			if took := time.Duration(report.Phases[0].Took); took < cfg.QuietCap && g.longest < cfg.QuietTime {
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
