package agent

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/lastcall-dev/lastcall/internal/sidecar/envoy"
	"github.com/lastcall-dev/lastcall/internal/sidecar/loadtest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

// refused reports whether the address refuses connections.
func refused(address string) bool {
	conn, err := net.Dial("tcp", address)
	if err == nil {
		_ = conn.Close()
	}
	return err != nil
}

// A hook's drain that is cancelled also undoes what the admin API
// has requested: else the pod would stay drained forever.
func TestAdminForgetsWithTheHook(t *testing.T) {
	t.Parallel() // it waits for a deadline
	admin, address := withAdmin(t, "")
	r := start(t, []string{"TERMINATION_GRACE_PERIOD_SECONDS=1", "LASTCALL_LAST_CALL_MARGIN=500ms"}, admin)
	postTo(address, "healthcheck/fail")
	postTo(address, "drain_listeners")
	if !refused(r.inbound()) {
		t.Error("it still accepts after /drain_listeners")
	}
	r.post("/wait")
	r.until("resumed", func() bool {
		body, err := getFrom(address, "/ready")
		return err == nil && body == "LIVE\n"
	})
	if keep(t, r.inbound()).ask() {
		t.Error("Connection: close after the drain was cancelled")
	}
}

func TestAdminAddressThatSomebodyHas(t *testing.T) {
	ln := nettest.Listen(t, "127.0.0.1:0")
	defer ln.Close()
	r := start(t, nil, func(o *Options) { o.Admin = Admin{Address: ln.Addr().String(), Optional: true} })
	if !strings.Contains(r.log.String(), "cannot serve Envoy's admin API") {
		t.Errorf("no log line:\n%s", r.log)
	}
	r.terminates()
}

// withAdmin makes the agent answer the admin API at the address that it returns.
func withAdmin(t *testing.T, name string) (func(*Options), string) {
	address := freeAddress(t)
	return func(o *Options) {
		o.Admin = Admin{Address: address}
		o.Pipe.Inbound[0].Name = name
	}, address
}

// kept is a client's connection that stays open between requests.
type kept struct {
	*loadtest.Kept
	t *testing.T
}

func keep(t *testing.T, address string) *kept {
	t.Helper()
	return &kept{loadtest.Keep(t, address, 10*time.Second), t}
}

// ask makes a request that the app answers at once. It returns whether the
// response announced the end of the connection.
func (k *kept) ask() (closes bool) {
	k.t.Helper()
	k.Ask("/ready")
	resp, _ := k.Answer(k.t)
	if resp.StatusCode != http.StatusOK {
		k.t.Fatalf("answer: %s", resp.Status)
	}
	return resp.Close
}

// wantEnd waits for an orderly end.
func (k *kept) wantEnd() {
	k.t.Helper()
	if b, err := io.ReadAll(k.R); err != nil || len(b) > 0 {
		k.t.Errorf("want the end of the connection, got %q, %v", b, err)
	}
}

func (r *running) inbound() string { return strings.TrimPrefix(r.url, "http://") }

// The peers' ways of draining an Envoy, each by its own rules (what it sends,
// what it counts), on the pipe: none ends while a request is in flight, each
// sees the end, and no idle connection holds it up.
func TestPeersDrainThePipe(t *testing.T) {
	for _, peer := range []struct {
		name  string
		named string   // what it expects the listener to be called
		posts []string // how it begins
		count func(admin string) (int, error)
	}{
		{"Istio's pilot-agent", "", []string{"drain_listeners?inboundonly&graceful"}, istioCount},
		{"Istio's pilot-agent in a native sidecar", "", []string{"drain_listeners?inboundonly&graceful&skip_exit"},
			istioCount},
		{"Istio's pilot-agent of a gateway", "", []string{"drain_listeners?graceful"}, istioCount},
		{"Contour's shutdown manager", "ingress_http", []string{"healthcheck/fail"}, contourCount},
		{"Envoy Gateway's shutdown manager of 1.0", "", []string{"healthcheck/fail"}, totalConnections},
		{"Envoy Gateway's shutdown manager since 1.2", "",
			[]string{"drain_listeners?graceful&skip_exit", "healthcheck/fail"}, totalConnections},
		{"Envoy Gateway's shutdown manager since 1.5.9", "",
			[]string{"drain_listeners?graceful&skip_exit", "healthcheck/fail"}, listenersByPattern},
	} {
		t.Run(peer.name, func(t *testing.T) {
			admin, address := withAdmin(t, peer.named)
			r := start(t, nil, admin)
			wantCount := func(want int) {
				t.Helper()
				var n int
				var err error
				r.until(fmt.Sprintf("counted as %d", want), func() bool {
					n, err = peer.count(address)
					return err == nil && n == want
				})
			}
			idle := keep(t, r.inbound())
			idle.ask()
			answer := r.inFlight("/slow")
			wantCount(2)
			for _, path := range peer.posts {
				if status, body := postTo(address, path); status != 200 || body != "OK\n" {
					t.Fatalf("POST %s: %d %q", path, status, body)
				}
			}
			idle.wantEnd()
			wantCount(1) // the one in flight
			if !keep(t, r.inbound()).ask() {
				t.Error("a new client gets no Connection: close")
			}
			wantCount(1)
			r.wantAnswered(answer)
			wantCount(0)
			r.terminates() // as the kubelet does after the hook
			if got := r.report(); got.Verdict != "clean" {
				t.Errorf("report %+v", got)
			}
		})
	}
}

func postTo(admin, path string) (int, string) { return fetch("POST", "http://"+admin+"/"+path) }

func getFrom(admin, path string) (string, error) {
	code, body := fetch("GET", "http://"+admin+path)
	if code != http.StatusOK {
		return "", fmt.Errorf("%s: %d: %s", path, code, body)
	}
	return body, nil
}

// istioLines are lines that pilot-agent can parse.
var istioLines = regexp.MustCompile(`^([^:\n]+: \d+\n)+$`)

// istioCount counts as pilot-agent does. Without a count it would leave at once: an error here.
func istioCount(admin string) (int, error) {
	body, err := getFrom(admin, "/stats?usedonly&filter=downstream_cx_active$")
	if err != nil {
		return 0, err
	}
	if !istioLines.MatchString(body) {
		return 0, fmt.Errorf("malformed: %q", body)
	}
	active, known := envoy.IstioCount([]byte(body))
	if !known {
		return 0, fmt.Errorf("the statistic is not available")
	}
	return active, nil
}

// contourCount adds up one family of Prometheus' text, for the listeners that
// Contour makes.
func contourCount(admin string) (int, error) {
	body, err := getFrom(admin, "/stats/prometheus")
	if err != nil {
		return 0, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	family, found := families["envoy_http_downstream_cx_active"]
	if !found {
		return 0, fmt.Errorf("no envoy_http_downstream_cx_active in\n%s", body)
	}
	sum := 0
	for _, metric := range family.GetMetric() {
		for _, label := range metric.GetLabel() {
			if v := label.GetValue(); v == "ingress_http" || v == "ingress_https" {
				sum += int(metric.GetGauge().GetValue())
			}
		}
	}
	return sum, nil
}

// gatewayStats asks as Envoy Gateway does: two slashes, the filter as it is.
func gatewayStats(admin, filter string, skip func(string) bool) (int, error) {
	body, err := getFrom(admin, "//stats?filter="+filter+"&format=json")
	if err != nil {
		return 0, err
	}
	var got struct {
		Stats []struct {
			Name  string
			Value int
		}
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		return 0, err
	}
	if len(got.Stats) == 0 {
		return 0, fmt.Errorf("no stats found")
	}
	sum := 0
	for _, s := range got.Stats {
		if !skip(s.Name) {
			sum += s.Value
		}
	}
	return sum, nil
}

func totalConnections(admin string) (int, error) {
	return gatewayStats(admin, `^server\.total_connections$`, func(string) bool { return false })
}

var notCounted = regexp.MustCompile(`admin|19001|19003|worker`)

func listenersByPattern(admin string) (int, error) {
	return gatewayStats(admin, `^listener\..*\.downstream_cx_active$`, notCounted.MatchString)
}
