package observe

import (
	"testing"
	"time"
)

// TestProbes: the times of connections show which are the kubelet's probes; see the picture in probes_linux.go.
func TestProbes(t *testing.T) {
	began := time.Unix(1e9, 0)
	at := func(seconds float64) time.Time { return began.Add(time.Duration(seconds * float64(time.Second))) }
	every := func(from, to, period float64) (all []float64) {
		for ; from <= to; from += period {
			all = append(all, from)
		}
		return all
	}
	second := []Probe{{8080, time.Second}}
	for _, tt := range []struct {
		name                  string
		probes                []Probe
		seen, refused         []float64 // seconds after the beginning
		probe, perhaps, other int
	}{
		{"refused probes, each at its time", second, every(-8, 0, 1), every(1, 6, 1), 6, 0, 0},
		{"a busy kubelet", second, every(-8, 0, 1), []float64{1.1, 2, 3.2, 4}, 4, 0, 0},
		{"clients between them", second, every(-8, 0, 1), []float64{0.5, 1, 1.5, 2}, 2, 0, 2},
		{"two clients in place of one probe", second, every(-8, 0, 1), []float64{1, 1, 1}, 1, 0, 2},
		{"many clients on the node's address", second, every(-8, 0, 0.1), []float64{1, 2}, 0, 2, 0},
		{"one was missed", second, []float64{-3, -2, -1}, []float64{1}, 1, 0, 0},
		{"never seen before", []Probe{{8080, 10 * time.Second}}, nil, []float64{0.3, 0.4}, 0, 1, 1},
		{"seen once: the kubelet's first one comes at another moment", []Probe{{8080, 10 * time.Second}}, []float64{-3}, []float64{1, 2}, 0, 1, 1},
		{"no probes", nil, every(-8, 0, 1), []float64{1, 2}, 0, 0, 2},
		{"readiness each second, liveness each ten", []Probe{{8080, time.Second}, {8080, 10 * time.Second}}, append(every(-8, 0, 1), -3.4), every(1, 9, 1), 9, 0, 0},
	} {
		p := newProbes(tt.probes, nil)
		for range 2 { // a connection is noted when it is seen, and when it ends
			for _, seconds := range tt.seen {
				p.note(8080, at(seconds))
			}
		}
		probe, perhaps, other := 0, 0, 0
		for _, seconds := range tt.refused {
			is, isCertain := p.take(began, at(seconds-0.025), at(seconds))
			switch {
			case isCertain:
				probe++
			case is:
				perhaps++
			default:
				other++
			}
		}
		if probe != tt.probe || perhaps != tt.perhaps || other != tt.other {
			t.Errorf("%s: %d probes, %d perhaps, %d others; want %d, %d, %d", tt.name, probe, perhaps, other, tt.probe, tt.perhaps, tt.other)
		}
	}
}
