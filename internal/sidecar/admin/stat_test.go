package admin

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/sidecar/counters"
	"github.com/lastcall-dev/lastcall/internal/sidecar/pipe"
)

func TestListenersOnEveryAddressAreNamedAsIstioDoes(t *testing.T) {
	for address, want := range map[string]string{
		"[::]:80":             "0.0.0.0_80",
		"0.0.0.0:80":          "0.0.0.0_80",
		"127.0.0.1:80":        "127.0.0.1_80",
		"[::ffff:10.0.0.1]:1": "10.0.0.1_1",
		"[::1]:80":            "[__1]_80",
	} {
		l := listenerOn(address, "", "")
		if got := statAddress(&l); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}

func TestNamesAreSharedAsInEnvoy(t *testing.T) {
	s, plane := startServer(t)
	first, second := listenerOn("10.0.0.1:80", "web", "127.0.0.1:8080"), listenerOn("10.0.0.1:81", "web", "127.0.0.1:8080")
	first.Open, first.Stats = 1, counters.Stats{Connections: 2, Requests: 3}
	second.Open, second.Stats = 10, counters.Stats{Connections: 20, Requests: 30}
	plane.listeners = []pipe.Listener{first, second}
	if _, body := ask(t, s, "GET", "/stats?filter=^http.web.*(cx_active|rq_total)|^cluster.*rq_total|^listener.10.*active|total_connections"); body != `cluster.inbound|8080||.upstream_rq_total: 33
http.web.downstream_cx_active: 11
http.web.downstream_rq_total: 33
listener.10.0.0.1_80.downstream_cx_active: 1
listener.10.0.0.1_81.downstream_cx_active: 10
server.total_connections: 11
` {
		t.Error(body)
	}
}

// A reader in the middle of a change sees no negative numbers.
func TestNoCountIsNegative(t *testing.T) {
	s, plane := startServer(t)
	web := &plane.listeners[0]
	web.Open = int(web.Stats.Connections) + 1
	web.Busy, web.Stats.Requests = 5, 1
	for _, target := range []string{"/stats", "/stats/prometheus"} {
		if _, body := ask(t, s, "GET", target); regexp.MustCompile(`\d{19}`).MatchString(body) {
			t.Errorf("%s:\n%s", target, body)
		}
	}
}

func TestStatsAreInOrderAndValid(t *testing.T) {
	s, _ := startServer(t)
	_, body := ask(t, s, "GET", "/stats")
	lines := strings.Split(strings.TrimSuffix(body, "\n"), "\n")
	if !slices.IsSorted(lines) || len(lines) != len(slices.Compact(slices.Clone(lines))) {
		t.Error(body)
	}
	for _, line := range lines {
		if !regexp.MustCompile(`^[^:]+: \d+$`).MatchString(line) {
			t.Errorf("line %q", line)
		}
	}
	_, body = ask(t, s, "GET", "/stats?format=json")
	var got struct{ Stats []struct{ Name string } }
	if err := json.Unmarshal([]byte(body), &got); err != nil || len(got.Stats) != len(lines) {
		t.Errorf("%v: %d of %d", err, len(got.Stats), len(lines))
	}
}
