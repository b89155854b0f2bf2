package podtest

import (
	"net/http"
	"sync"
	"testing"
	"time"
)

// answers are the responses to a client that repeats requests while the pod ends.
type answers struct {
	mu     sync.Mutex // guards the fields below
	good   int
	latest time.Time // of the good ones
	others []string
}

// askOn asks each 20 ms, for as long as a client takes that learns late of the pod's end, requests that take 300 ms,
// and first of all one that outlasts the minimum drain. It returns when all are answered.
func (p *pod) askOn(d time.Duration) *answers {
	a := &answers{}
	var all sync.WaitGroup
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	addresses := []string{p.Pod.TCP4(appPort), p.Pod.TCP6(appPort)}
	for i, end := 0, time.Now().Add(d); time.Now().Before(end); i++ {
		path := "/?after=300ms"
		if i == 0 {
			path = "/?after=2500ms"
		}
		all.Go(func() {
			code, body, err := p.get(addresses[i%2], path)
			now := time.Now()
			a.mu.Lock()
			defer a.mu.Unlock()
			switch {
			case err != nil:
				a.others = append(a.others, err.Error())
			case code != http.StatusOK || body != "answered":
				a.others = append(a.others, http.StatusText(code)+" "+body)
			default:
				a.good++
				if now.After(a.latest) {
					a.latest = now
				}
			}
		})
		<-tick.C
	}
	all.Wait()
	return a
}

// The order of the end, by the clock: the last inbound response, then the app's SIGTERM, then the app's end, then the
// sidecar's. By Istio's rules the app's SIGTERM comes first, and late clients are not served.
func TestOrder(t *testing.T) {
	t.Parallel()
	for _, w := range append(ours, istioClassic, istioNative) {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			p := newPod(t)
			w.env = append(w.env[:len(w.env):len(w.env)], "MINIMUM_DRAIN_DURATION=1500ms")
			a := p.begin(w, lastWords{})
			answered := make(chan *answers)
			go func() { answered <- p.askOn(900 * time.Millisecond) }()
			<-time.After(200 * time.Millisecond) // the pod ends in the midst of it
			began := time.Now()
			app, sidecar := p.end(t, w, a)
			got := <-answered
			sigterm := a.heard("SIGTERM")
			if sigterm == nil {
				t.Fatal("the app had no SIGTERM")
			}
			since := func(at time.Time) time.Duration { return at.Sub(began).Round(time.Millisecond) }
			t.Logf("%d answers, the last after %v; %d not served; the app's SIGTERM after %v, its end %v; the sidecar's SIGTERM %v, its end %v",
				got.good, since(got.latest), len(got.others), since(sigterm.At), since(app.Gone), since(sidecar.Terminated), since(sidecar.Gone))
			if w.app == nil { // Istio's
				if !sigterm.At.Before(got.latest) || len(got.others) == 0 {
					t.Error("Istio's rules do better than they should: is it they?")
				}
				return
			}
			if len(got.others) > 0 {
				t.Errorf("not served: %q", got.others)
			}
			// A client may look at its answer late. Without the order the SIGTERM comes 800 ms before it.
			if late := got.latest.Sub(sigterm.At); late > 400*time.Millisecond {
				t.Errorf("an answer came %v after the app's SIGTERM", late)
			}
			if last := a.lastEvent(); !last.Before(sidecar.Gone) {
				t.Errorf("the sidecar went %v before the app", last.Sub(sidecar.Gone))
			}
			if w.native && sidecar.Terminated.Before(app.Gone) {
				t.Error("the sidecar had its SIGTERM before the app's end")
			}
		})
	}
}
