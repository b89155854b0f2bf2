package envoy

import (
	"maps"
	"strings"
	"testing"
)

func TestParseStats(t *testing.T) {
	long := strings.Repeat("x", 2<<20)
	for name, tt := range map[string]struct {
		body string
		want Stats
	}{
		"none":            {"", Stats{}},
		"plain":           {"a.b: 1\nc: 0\n", Stats{"a.b": 1, "c": 0}},
		"no end of line":  {"a: 1", Stats{"a": 1}},
		"separator twice": {"http.a: b.downstream_rq_active: 3\n", Stats{"http.a: b.downstream_rq_active": 3}},
		"under-run":       {"a: 18446744073709551615\nb: 18446744073709551611\n", Stats{"a": -1, "b": -5}},
		"text":            {"a: -1\nb: P0(nan,1)\nc: \"x\"\n<html>\n\nd:1\n", Stats{}},
		"long line":       {long + ": 1\na: 2\n", Stats{long: 1, "a": 2}},
	} {
		if got := ParseStats([]byte(tt.body)); !maps.Equal(got, tt.want) {
			t.Errorf("%s: %v; want %v", name, got, tt.want)
		}
	}
}

// The edges of pilot-agent's count, its faults included.
func TestIstioCount(t *testing.T) {
	for name, tt := range map[string]struct {
		body   string
		active int
		known  bool
	}{
		"nothing is matched":       {"", 0, false},
		"only http.* is matched":   {"http.inbound_0.0.0.0_8080;.downstream_cx_active: 3\n", 0, true},
		"inbound and outbound":     {"listener.0.0.0.0_15006.downstream_cx_active: 2\nlistener.0.0.0.0_15001.downstream_cx_active: 3\n", 5, true},
		"workers":                  {"listener.0.0.0.0_15006.worker_0.downstream_cx_active: 2\n", 0, true},
		"a user's worker_":         {"listener.worker_api.downstream_cx_active: 2\n", 0, true},
		"ambient":                  {"listener.envoy_internal_main_internal.downstream_cx_active: 2\n", 0, true},
		"known listeners":          {"listener.0.0.0.0_15021.downstream_cx_active: 1\nlistener.0.0.0.0_15090.downstream_cx_active: 1\nlistener.admin.downstream_cx_active: 1\nlistener.admin.main_thread.downstream_cx_active: 1\n", 0, true},
		"known listeners, IPv6":    {"listener.[__]_15021.downstream_cx_active: 1\nlistener.[__]_15090.downstream_cx_active: 1\n", 2, true},
		"a user's admin-eu":        {"listener.admin-eu.downstream_cx_active: 1\n", 1, true},
		"under-run":                {"listener.a.downstream_cx_active: 18446744073709551615\n", -1, false},
		"under-run, another's one": {"listener.a.downstream_cx_active: 18446744073709551615\nlistener.b.downstream_cx_active: 1\n", 0, true},
		"under-run by three":       {"listener.a.downstream_cx_active: 18446744073709551613\n", -3, true},
		"-1 as text":               {"listener.a.downstream_cx_active: -1\n", 0, true},
		"garbage":                  {"<html>\n", 0, true},
	} {
		if active, known := istioCount([]byte(tt.body)); active != tt.active || known != tt.known {
			t.Errorf("%s: %d, %v; want %d, %v", name, active, known, tt.active, tt.known)
		}
	}
}
