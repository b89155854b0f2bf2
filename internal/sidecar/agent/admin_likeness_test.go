package agent

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"

	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/logs/logstest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
	"github.com/lastcall-dev/lastcall/internal/sidecar/pipe"
)

// The same requests to a real Envoy's admin API and to the pipe's, after the
// same traffic through both. Envoy listens on 127.0.0.1, the pipe on 127.0.0.2
// with the same ports, so that all names are the same but for that.

const (
	envoyHost = "127.0.0.1"
	pipeHost  = "127.0.0.2"
)

// side is one of the two.
type side struct {
	admin   string // host:port
	web, db string // its listeners
	client  *http.Client
}

type adminResponse struct {
	status int
	header map[string]string
	body   string
}

func (s *side) ask(t *testing.T, method, target string) adminResponse {
	t.Helper()
	req, err := http.NewRequest(method, "http://"+s.admin+target, nil)
	must.Do(t, err)
	req.Close = method == http.MethodHead // Envoy 1.40 sends a body even then, which breaks keep-alive
	resp, err := s.client.Do(req)
	must.Do(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must.Do(t, err)
	out := adminResponse{resp.StatusCode, make(map[string]string), strings.ReplaceAll(string(body), pipeHost, envoyHost)}
	for name := range resp.Header {
		out.header[strings.ToLower(name)] = strings.Join(resp.Header[name], ", ")
	}
	if out.header["date"] != "" {
		out.header["date"] = "a date"
	}
	if method != http.MethodHead { // Envoy says chunked there too, net/http does not
		out.header["transfer-encoding"] = strings.Join(resp.TransferEncoding, ", ")
	}
	out.header["connection"] = fmt.Sprint("close ", resp.Close)
	return out
}

// bootstrap has what the pipe has: one listener for HTTP, one for TCP, one app.
const bootstrap = `{
 "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}}},
 "stats_flush_interval": "0.050s",
 "static_resources": {
  "listeners": [
   {"name": "ingress_http", "traffic_direction": "INBOUND",
    "address": {"socket_address": {"address": "127.0.0.1", "port_value": %[1]s}},
    "filter_chains": [{"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": {
     "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
     "stat_prefix": "ingress_http",
     "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "inbound|%[3]s||", "timeout": "0s"}}]}]},
     "http_filters": [{"name": "router", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}]}}]}]},
   {"name": "db", "traffic_direction": "INBOUND",
    "address": {"socket_address": {"address": "127.0.0.1", "port_value": %[2]s}},
    "filter_chains": [{"filters": [{"name": "envoy.filters.network.tcp_proxy", "typed_config": {
     "@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
     "stat_prefix": "db", "cluster": "inbound|%[3]s||"}}]}]}],
  "clusters": [{"name": "inbound|%[3]s||", "type": "STATIC", "connect_timeout": "1s", "load_assignment": {"cluster_name": "inbound|%[3]s||",
   "endpoints": [{"lb_endpoints": [{"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": %[3]s}}}}]}]}}]}}`

// startBoth starts an Envoy and an agent that are each other's likeness. Both
// stop listening drainTime (whole seconds) after a graceful drain.
func startBoth(t *testing.T, drainTime time.Duration) (envoy, own *side) {
	t.Helper()
	program := peers.Need(t, "envoy")
	webPort, dbPort := portOf(freeAddress(t)), portOf(freeAddress(t))
	admin, address := withAdmin(t, "ingress_http")
	var app string
	start(t, []string{"MINIMUM_DRAIN_DURATION=60s"}, admin, func(o *Options) {
		app = o.Pipe.Inbound[0].App
		o.Pipe.Inbound[0].Listen = net.JoinHostPort(pipeHost, webPort)
		o.Pipe.Inbound = append(o.Pipe.Inbound, pipe.Inbound{Listen: net.JoinHostPort(pipeHost, dbPort), App: app,
			Protocol: pipe.TCP, Name: "db"})
		o.Settings.DrainDuration.Value = drainTime
	})
	own = &side{admin: address, web: net.JoinHostPort(pipeHost, webPort), db: net.JoinHostPort(pipeHost, dbPort)}
	envoy = &side{web: net.JoinHostPort(envoyHost, webPort), db: net.JoinHostPort(envoyHost, dbPort)}

	folder := t.TempDir()
	config, adminFile := filepath.Join(folder, "envoy.json"), filepath.Join(folder, "admin")
	must.Do(t, os.WriteFile(config, fmt.Appendf(nil, bootstrap, webPort, dbPort, portOf(app)), 0o600))
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, "-c", config, "--admin-address-path", adminFile, "--disable-hot-restart",
		"--concurrency", "1", "--drain-time-s", fmt.Sprint(int(drainTime.Seconds())), "--drain-strategy", "immediate", "-l",
		"error")
	var log logstest.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	must.Do(t, cmd.Start())
	t.Cleanup(func() { cancel(); _ = cmd.Wait() })
	polltest.Eventually(t, "Envoy live", func() bool {
		b, err := os.ReadFile(adminFile)
		if err != nil || len(b) == 0 {
			return false
		}
		envoy.admin = strings.TrimSpace(string(b))
		body, err := getFrom(envoy.admin, "/ready")
		return err == nil && body == "LIVE\n"
	})
	for _, s := range []*side{envoy, own} {
		transport := &http.Transport{MaxConnsPerHost: 1}
		s.client = &http.Client{Transport: transport, Timeout: time.Minute}
		t.Cleanup(transport.CloseIdleConnections)
	}
	return envoy, own
}

func portOf(address string) string {
	_, port, _ := net.SplitHostPort(address)
	return port
}

// traffic is the same for both: one connection that is kept after two requests,
// one that is gone after one, and one for TCP.
func (s *side) traffic(t *testing.T) {
	t.Helper()
	stays := keep(t, s.web)
	stays.ask()
	stays.ask()
	goes := keep(t, s.web)
	goes.ask()
	_ = goes.Close()
	keep(t, s.db)
	polltest.Eventually(t, "counted", func() bool {
		active := s.ask(t, "GET", "/stats?filter=^listener.127.0.0.._\\d%2B.downstream_cx_active$").body
		return strings.Count(active, ": 1\n") == 2 &&
			strings.Contains(s.ask(t, "GET", "/stats?filter=total_connections").body, ": 2")
	})
}

var numbers = regexp.MustCompile(`\d+`)

// lines are the lines of a body without their values, uptime and other numbers
// at their end.
func lines(body string) map[string]bool {
	out := make(map[string]bool)
	for line := range strings.Lines(body) {
		line = strings.TrimRight(line, "\n")
		if i := strings.LastIndexAny(line, " "); i >= 0 && numbers.FindString(line[i+1:]) == line[i+1:] {
			line = line[:i]
		}
		out[line] = true
	}
	return out
}

func TestAnswersAreEnvoys(t *testing.T) {
	envoy, own := startBoth(t, time.Minute)
	envoy.traffic(t)
	own.traffic(t)

	const web = "^http.ingress_http.downstream_(cx|rq)_(active|total)$"
	const listeners = `^listener.127.0.0.._\d%2B.downstream_cx_(active|total)$`
	const server = `^server.(live|state|total_connections)$|^listener_manager.workers_s`
	all := func(b string) string { return b }
	for _, tt := range []struct {
		name    string
		part    func(string) string // what of the body has to be the same
		targets []string
	}{
		{"the whole answer", all, []string{
			"GET /ready", "POST /ready", "PUT /ready", "HEAD /ready", "OPTIONS /ready", "GET //ready", "GET /x/.././ready",
			"GET /%72eady", "GET /ready?x",
			"GET /drain_listeners", "PUT /quitquitquit", "HEAD /drain_listeners", "GET /healthcheck/fail",
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
			"POST /healthcheck/fail", "GET /ready", "HEAD /ready", "GET /stats?filter=" + server,
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
				want.header["server"] = "lastcall" // each names itself
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
		for _, target := range []string{"/stats", "/stats?usedonly", "/stats/prometheus"} {
			theirs := lines(envoy.ask(t, "GET", target).body)
			for line := range lines(own.ask(t, "GET", target).body) {
				if !theirs[line] {
					t.Errorf("%s has a line that Envoy has not: %s", target, line)
				}
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
		{[]string{"/drain_listeners"}, 200, true, false, false},
		{[]string{"/drain_listeners?inboundonly"}, 200, true, false, false},
		{[]string{"/drain_listeners?inboundonly&graceful"}, 200, true, true, true},
		{[]string{"/drain_listeners?graceful&skip_exit"}, 200, true, true, false},
		{[]string{"/drain_listeners?graceful&skip_exit", "/healthcheck/fail"}, 503, true, true, false},
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
