package timers

import (
	"testing"
	"time"
)

func TestParseGracePeriod(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"1": time.Second, "30": 30 * time.Second, "2147483647": 2147483647 * time.Second,
		"": 0, "0": 0, "-1": 0, "2147483648": 0, "99999999999999999999": 0, "30s": 0, "1.5": 0, " 30": 0,
	} {
		if got, ok := ParseGracePeriod(text); ok != (want > 0) || ok && got != want {
			t.Errorf("%q: %v, %v; want %v", text, got, ok, want)
		}
	}
}

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{"0s": 0, "0": 0, "1m30s": 90 * time.Second, "": -1, "5": -1, "-1s": -1, "5 s": -1} {
		if got, ok := ParseDuration(text); ok != (want >= 0) || ok && got != want {
			t.Errorf("%q: %v, %v; want %v", text, got, ok, want)
		}
	}
}

// The order of the candidates, often that of a map, does not decide.
func TestNearestIsOne(t *testing.T) {
	for _, among := range [][]string{{"containers", "initContainers", "containerd"}, {"containerd", "containers"}} {
		if got, ok := Nearest("containerz", among); got != "containerd" || !ok {
			t.Errorf("among %v: %q, %t", among, got, ok)
		}
	}
}
