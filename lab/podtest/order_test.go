package podtest

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/loadtest"
)

// keepAsking asks 50 times a second, for as long as a client takes that learns late of the pod's end, requests that take 300 ms,
// and first of all one that outlasts the minimum drain. It returns when all are answered, with the time of the last answer.
func (p *pod) keepAsking(d time.Duration) (sent *loadtest.Load, latest time.Time) {
	ctx, cancel := context.WithTimeout(p.t.Context(), d)
	defer cancel()
	var mu sync.Mutex // guards latest
	addresses := []string{p.Pod.TCP4(appPort), p.Pod.TCP6(appPort)}
	sent = loadtest.AtRate(ctx, 50, func(i int) (why string) {
		path := "/?after=300ms"
		if i == 0 {
			path = "/?after=2500ms"
		}
		code, body, err := p.get(addresses[i%2], path)
		switch {
		case err != nil:
			return err.Error()
		case code != http.StatusOK || body != "answered":
			return http.StatusText(code) + " " + body
		}
		mu.Lock()
		defer mu.Unlock()
		if now := time.Now(); now.After(latest) {
			latest = now
		}
		return ""
	})
	return sent, latest
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
			var asking sync.WaitGroup
			var sent *loadtest.Load
			var latest time.Time
			asking.Go(func() { sent, latest = p.keepAsking(900 * time.Millisecond) })
			<-time.After(200 * time.Millisecond) // the pod ends in the midst of it
			began := time.Now()
			app, sidecar := p.end(t, w, a)
			asking.Wait()
			sigterm := a.heard("SIGTERM")
			if sigterm == nil {
				t.Fatal("the app had no SIGTERM")
			}
			since := func(at time.Time) time.Duration { return at.Sub(began).Round(time.Millisecond) }
			t.Logf("%v, the last answer after %v; the app's SIGTERM after %v, its end %v; the sidecar's SIGTERM %v, its end %v",
				sent, since(latest), since(sigterm.At), since(app.Gone), since(sidecar.Terminated), since(sidecar.Gone))
			if w.app == nil { // Istio's
				if !sigterm.At.Before(latest) || sent.Failed() == 0 {
					t.Error("Istio's rules do better than they should: is it they?")
				}
				return
			}
			if sent.Failed() > 0 {
				t.Error("some were not served")
			}
			// A client may look at its answer late. Without the order the SIGTERM comes 800 ms before it.
			if late := latest.Sub(sigterm.At); late > 400*time.Millisecond {
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
