package agent

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
)

func TestAnswersAreEnvoys(t *testing.T) {
	envoy, own := startBoth(t, time.Minute)
	envoy.traffic(t)
	own.traffic(t)

	const web = "^http.ingress_http.downstream_(cx_(active|destroy|total)|rq_(active|total|[1-5]xx))$"
	const listeners = `^listener.127.0.0.._\d%2B.downstream_cx_(active|destroy|total)$`
	const server = `^server.(live|state|total_connections)$|^listener_manager.(listener_stopped|total_listeners_active|workers_s)`
	all := func(b string) string { return b }
	for _, tt := range []struct {
		name    string
		part    func(string) string // what of the body has to be the same
		targets []string
	}{
		{"the whole answer", all, []string{
			"GET /ready", "POST /ready", "PUT /ready", "HEAD /ready", "OPTIONS /ready", "GET //ready", "GET /x/.././ready",
			"GET /%72eady", "GET /ready?x",
			"GET /drain_listeners", "PUT /quitquitquit", "HEAD /drain_listeners", "GET /healthcheck/ok",
			"DELETE /healthcheck/fail",
			"GET /stats?filter=nothing", "GET /stats?filter=nothing&format=json", "GET /stats/prometheus?filter=nothing",
			"GET /stats?filter=" + web, "POST /stats?filter=" + web, "GET /stats?filter=" + web + "&usedonly",
			"GET /stats?usedonly=0&filter=" + web,
			"GET /stats?filter=" + web + "&format=json", "GET /stats?filter=" + web + "&format=text",
			"GET /stats?format=&filter=" + web,
			"GET /stats/prometheus?filter=" + web, "GET /stats?format=prometheus&filter=" + web,
			"GET /stats/prometheus?usedonly&filter=" + web,
			"GET /stats?filter=" + listeners, "GET /stats?usedonly&filter=" + listeners,
			"GET /stats/prometheus?filter=" + listeners,
			"GET /stats?filter=" + server, "GET /stats?usedonly&filter=" + server, "GET /stats?format=json&filter=" + server,
			"GET /stats/prometheus?filter=" + server,
			"GET /stats?filter=^server.live$&filter=x", "GET /stats?filter=%5Eserver%5C.live%24",
			"GET /stats/prometheus?filter=" + web + "|" + listeners + "|" + server,
			"POST /healthcheck/fail", "GET /ready", "HEAD /ready", "GET /stats?filter=" + server, "POST /healthcheck/ok",
			"GET /ready", "GET /stats?filter=" + server,
		}},
		{"the head", func(string) string { return "" }, []string{"GET /stats?filter=[", "GET /stats/prometheus?filter=(",
			"GET /stats?format=xml", "GET /stats", "GET /nope", "GET /stats/", "HEAD /nope"}},
	} {
		for _, target := range tt.targets {
			method, path, _ := strings.Cut(target, " ")
			// A counter may be on its way still.
			polltest.NoError(t, func() error {
				want, got := envoy.ask(t, method, path), own.ask(t, method, path)
				want.body, got.body = tt.part(want.body), tt.part(got.body)
				switch {
				case want.body == "" && slices.Contains([]string{web, listeners, server}, strings.TrimPrefix(path, "/stats?filter=")):
					return fmt.Errorf("%s: the filter chooses nothing", target)
				case want.status != got.status:
					return fmt.Errorf("%s: status %d, Envoy's is %d", target, got.status, want.status)
				case !maps.Equal(want.header, got.header):
					return fmt.Errorf("%s: header\n%v\nEnvoy's is\n%v", target, got.header, want.header)
				case want.body != got.body:
					return fmt.Errorf("%s: body, %s:\n%s\nEnvoy's is\n%s", target, tt.name, got.body, want.body)
				}
				return nil
			})
		}
	}

	t.Run("all answers exist in Envoy", func(t *testing.T) {
		for _, target := range []string{"/stats", "/stats?usedonly"} {
			theirs := lines(envoy.ask(t, "GET", target).body)
			for line := range lines(own.ask(t, "GET", target).body) {
				if !theirs[line] {
					t.Errorf("%s has a line that Envoy has not: %s", target, line)
				}
			}
		}
		theirs := lines(envoy.ask(t, "GET", "/stats/prometheus").body)
		for line := range lines(own.ask(t, "GET", "/stats/prometheus").body) {
			if !theirs[line] {
				t.Errorf("/stats/prometheus has a series that Envoy has not: %s", line)
			}
		}
	})
}

// What a drain does to clients is the same in both.
func TestDrainsAreEnvoys(t *testing.T) {
	for _, tt := range []struct {
		posts   []string
		ready   int
		goodbye bool // on the next response
		accepts bool // new connections, at once
		stops   bool // accepting, within the drain time
	}{
		{[]string{"/healthcheck/fail"}, 503, true, true, false},
		{[]string{"/healthcheck/fail", "/healthcheck/ok"}, 200, false, true, false},
		{[]string{"/drain_listeners"}, 200, true, false, false},
		{[]string{"/drain_listeners?inboundonly"}, 200, true, false, false},
		{[]string{"/drain_listeners?inboundonly&graceful"}, 200, true, true, true},
		{[]string{"/drain_listeners?graceful&skip_exit"}, 200, true, true, false},
		{[]string{"/drain_listeners?graceful&skip_exit", "/healthcheck/fail", "/healthcheck/ok"}, 200, true, true, false},
		{[]string{"/drain_listeners?graceful&skip_exit", "/drain_listeners"}, 200, true, false, false},
	} {
		t.Run(strings.Join(tt.posts, " "), func(t *testing.T) {
			drainTime := time.Minute
			if tt.stops {
				drainTime = 2 * time.Second
			}
			envoy, own := startBoth(t, drainTime)
			sides := map[string]*side{"Envoy": envoy, "the pipe": own}
			clients := make(map[string]*kept)
			for name, s := range sides {
				clients[name] = keep(t, s.web)
				if clients[name].ask() {
					t.Fatal("connection close before the drain")
				}
				for _, path := range tt.posts {
					if got := s.ask(t, "POST", path); got.status != 200 || got.body != "OK\n" {
						t.Errorf("%s: %s: %v", name, path, got)
					}
				}
			}
			for name, s := range sides {
				if got := s.ask(t, "GET", "/ready"); got.status != tt.ready {
					t.Errorf("%s: /ready %d, want %d", name, got.status, tt.ready)
				}
				polltest.Eventually(t, "as it should accept", func() bool { return refused(s.web) != tt.accepts }) // Envoy's workers follow a little later
				if goodbye := clients[name].ask(); goodbye != tt.goodbye {
					t.Errorf("%s: connection close %t, want %t", name, goodbye, tt.goodbye)
				}
				if tt.accepts {
					if goodbye := keep(t, s.web).ask(); goodbye != tt.goodbye {
						t.Errorf("%s: close on a new connection %t, want %t", name, goodbye, tt.goodbye)
					}
				}
			}
			for _, s := range sides {
				if tt.stops {
					polltest.Eventually(t, "stopped", func() bool { return refused(s.web) && refused(s.db) })
				}
			}
		})
	}
}
