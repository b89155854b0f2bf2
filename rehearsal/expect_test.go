package rehearsal

import (
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

func named(t *testing.T, name string) strategy.Strategy {
	t.Helper()
	list, err := strategy.Select(append(strategy.Strategies(), strategy.NextToIstio()...), []string{name})
	must.Do(t, err)
	return list[0]
}

const sec = time.Second

// What is stated, row by row: the experiment's own numbers first, then others.
func TestExpect(t *testing.T) {
	for _, tt := range []struct {
		strategy string
		left     time.Duration // of the request
		grace    time.Duration
		want     string
	}{
		{"istio-default", 10 * sec, 30 * sec, "503 after 5.00 s; pod gone after 5.00 s to 10.00 s"},
		{"istio-drain-30s", 10 * sec, 30 * sec, "200 after 10.00 s; pod gone after 30.00 s"},
		{"istio-exit-on-zero", 10 * sec, 30 * sec, "200 after 10.00 s; pod gone after 10.00 s to 11.00 s"},
		{"istio-exit-on-zero-idle", 10 * sec, 30 * sec, "200 after 10.00 s; pod gone after 30.00 s, by SIGKILL (an idle connection counts)"},
		{"istio-native", 10 * sec, 30 * sec, "503 after 0.00 s; pod gone after 0.00 s"},
		{"prestop-netstat", 10 * sec, 30 * sec, "503 after 5.00 s to 6.00 s; pod gone after 5.00 s to 10.00 s"},
		{"prestop-sleep-5", 10 * sec, 30 * sec, "503 after 5.00 s; pod gone after 10.00 s"},
		{"prestop-sleep-15", 10 * sec, 30 * sec, "200 after 10.00 s; pod gone after 20.00 s"},
		{"grace-7s-istio", 10 * sec, 30 * sec, "503 after 7.00 s; pod gone after 7.00 s, by SIGKILL"},
		{"grace-7s-lastcall", 10 * sec, 30 * sec, "503 after 5.25 s to 7.00 s; pod gone after 5.25 s to 7.00 s (the last call of a grace period of 7 s is at 5.25 s)"},
		{"lastcall-classic-exit", 10 * sec, 30 * sec, "200 after 10.00 s; pod gone after 10.00 s, at most 50ms after the last byte"},
		{"lastcall-native-close-listener", 10 * sec, 30 * sec, "200 after 10.00 s; pod gone after 10.00 s, at most 50ms after the last byte"},

		{"istio-default", 3 * sec, 30 * sec, "200 after 3.00 s; pod gone after 5.00 s"},
		{"istio-drain-30s", 10 * sec, 8 * sec, "503 after 8.00 s; pod gone after 8.00 s, by SIGKILL"},
		{"istio-exit-on-zero", 3 * sec, 30 * sec, "200 after 3.00 s; pod gone after 6.00 s to 7.00 s"},
		{"istio-exit-on-zero", 40 * sec, 30 * sec, "503 after 30.00 s; pod gone after 30.00 s, by SIGKILL"},
		{"prestop-netstat", 3 * sec, 30 * sec, "200 after 3.00 s; pod gone after 5.00 s to 6.00 s"},
		{"prestop-sleep-5", 3 * sec, 30 * sec, "200 after 3.00 s; pod gone after 10.00 s"},
		{"prestop-sleep-15", 10 * sec, 12 * sec, "200 after 10.00 s; pod gone after 14.00 s, by SIGKILL"},
		{"grace-7s-lastcall", 3 * sec, 30 * sec, "200 after 3.00 s; pod gone after 5.00 s, at most 50ms after the last byte"},
		{"lastcall-classic-exit", 3 * sec, 30 * sec, "200 after 3.00 s; pod gone after 5.00 s, at most 50ms after the last byte"},
		// A minimum drain that is longer than the time until the last call is cut there.
		{"lastcall-classic-exit", sec, 6 * sec, "200 after 1.00 s; pod gone after 4.50 s, at most 50ms after the last byte"},
		{"lastcall-native-exit", 40 * sec, 30 * sec, "503 after 28.00 s to 30.00 s; pod gone after 28.00 s to 30.00 s (the last call of a grace period of 30 s is at 28 s)"},
	} {
		name := tt.strategy + " with " + tt.left.String() + " of " + tt.grace.String()
		t.Run(name, func(t *testing.T) {
			s := named(t, tt.strategy)
			got := expect(s, circumstances{left: tt.left, grace: tt.grace})
			if len(got) != 1 {
				t.Fatalf("there are %d answers: %v", len(got), got)
			}
			if got[0].String() != tt.want {
				t.Errorf("got  %s\nwant %s", got[0], tt.want)
			}
		})
	}
}

// With a real Envoy as the sidecar: what differs from the pipe.
func TestExpectEnvoy(t *testing.T) {
	for _, tt := range []struct {
		strategy    string
		left, grace time.Duration
		want        string
	}{
		{"istio-default", 10 * sec, 30 * sec, "503 after 5.00 s; pod gone after 5.00 s to 10.00 s"},
		{"istio-exit-on-zero-idle", 10 * sec, 30 * sec, "200 after 10.00 s; pod gone after 30.00 s, by SIGKILL (an idle connection counts)"},
		{"istio-exit-on-zero-idle", 10 * sec, 60 * sec, "200 after 10.00 s; pod gone after 30.00 s to 47.00 s (an idle connection counts, and Envoy closes it in the last third of its drain time)"},
		{"istio-exit-on-zero-idle", 10 * sec, 40 * sec, "200 after 10.00 s; pod gone after 30.00 s to 40.00 s (an idle connection counts, and Envoy closes it in the last third of its drain time)"},
		{"grace-7s-lastcall", 10 * sec, 30 * sec, "503 after 5.25 s to 7.00 s; pod gone after 5.25 s to 7.00 s (the last call of a grace period of 7 s is at 5.25 s)"},
		{"grace-7s-lastcall", 3 * sec, 30 * sec, "200 after 3.00 s; pod gone after 5.00 s, at most 100ms after the last byte"},
		{"lastcall-classic-exit", 10 * sec, 30 * sec, "200 after 10.00 s; pod gone after 10.00 s to 10.45 s, at most 450ms after the last byte"},
		{"lastcall-classic-close-listener", 40 * sec, 30 * sec, "503 after 28.00 s to 30.00 s; pod gone after 28.00 s to 30.00 s (the last call of a grace period of 30 s is at 28 s)"},
		{"lastcall-istio-classic", 10 * sec, 30 * sec, "200 after 10.00 s; pod gone after 10.00 s to 10.45 s, at most 450ms after the last byte"},
		{"lastcall-istio-native", 24 * sec, 30 * sec, "200 after 24.00 s; pod gone after 24.00 s to 24.45 s, at most 450ms after the last byte"},
		{"lastcall-istio-native", 3 * sec, 30 * sec, "200 after 3.00 s; pod gone after 5.00 s to 5.45 s, at most 450ms after the last byte"},
		{"lastcall-istio-classic", 26 * sec, 30 * sec, "503 after 25.00 s; pod gone after 25.00 s (the hook's deadline is at 25 s, and the request ends with the app)"},
		{"lastcall-istio-native", 20 * sec, 12 * sec, "503 after 9.00 s; pod gone after 9.00 s (the hook's deadline is at 9 s, and the request ends with the app)"},
		{"lastcall-native-exit", 40 * sec, 30 * sec, "503 after 28.00 s; pod gone after 28.00 s (the last call is at 28 s, and the request ends with the app)"},
		{"lastcall-native-close-listener", 29 * sec, 30 * sec, "200 after 29.00 s; pod gone after 29.00 s to 31.00 s (the last call is at 28 s, and the request ends with the app)"},
		{"lastcall-native-close-listener", 40 * sec, 30 * sec, "503 after 30.00 s; pod gone after 30.00 s to 32.00 s (the last call is at 28 s, and the request ends with the app)"},
	} {
		t.Run(tt.strategy, func(t *testing.T) {
			s := named(t, tt.strategy)
			got := expect(s, circumstances{left: tt.left, grace: tt.grace, envoy: true})
			if len(got) != 1 || got[0].String() != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
	s := named(t, "grace-7s-lastcall")
	e := expect(s, circumstances{left: 10 * sec, grace: 30 * sec, envoy: true})[0]
	if e.body != terminationBody || e.log != terminationDetails || !e.unnamed {
		t.Errorf("Envoy's connections end with it: body %q, log %q, unnamed %v", e.body, e.log, e.unnamed)
	}
}

// A request that ends when it would be cut: either outcome is right.
func TestExpectTooClose(t *testing.T) {
	s := named(t, "istio-default")
	got := expect(s, circumstances{left: 5*sec - 100*time.Millisecond, grace: 30 * sec})
	if len(got) != 2 || got[0].lost || !got[1].lost {
		t.Fatalf("got %v", got)
	}
}

// Envoy's local reply is stated where the sidecar goes and the app stays.
func TestExpectWords(t *testing.T) {
	for _, tt := range []struct {
		strategy  string
		body, log string
	}{
		{"istio-default", terminationBody, terminationDetails},
		{"prestop-netstat", terminationBody, terminationDetails},
		{"istio-native", terminationBody, ""},
		{"grace-7s-lastcall", "", viaUpstream},
		{"lastcall-native-exit", "", ""},
	} {
		s := named(t, tt.strategy)
		e := expect(s, circumstances{left: 10 * sec, grace: 30 * sec})[0]
		if e.body != tt.body || e.log != tt.log {
			t.Errorf("%s: body %q, log %q", tt.strategy, e.body, e.log)
		}
	}
	if len(terminationBody) != 95 {
		t.Errorf("Envoy's body has 95 bytes, not %d", len(terminationBody))
	}
}
