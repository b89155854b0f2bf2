package podtest

import (
	"flag"
	"strings"
	"testing"
	"time"
)

var rounds = flag.Int("rounds", 2, "rounds of last requests for each form")

// An app that at SIGTERM writes an offset and a transaction to Redis and notifies an HTTP service, each on a new connection
// through the sidecar: nothing of it may be lost. The measurement is go test ./lab/podtest -run 'LastWords$' -rounds 100.
func TestLastWords(t *testing.T) {
	t.Parallel()
	for _, w := range ours {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			p := newPod(t, redirectOutbound...)
			world := p.newWorld(false)
			began := time.Now()
			for n := range *rounds {
				words := world.words
				words.Round = n + 1
				a := p.begin(w, words)
				_, sidecar := p.end(t, w, a)
				for _, failed := range a.failed() {
					t.Errorf("round %d: %s", n+1, failed)
				}
				if last := a.lastEvent(); sidecar.Gone.Before(last) {
					t.Errorf("round %d: the sidecar went %v before the app", n+1, last.Sub(sidecar.Gone))
				}
			}
			redis, posts := world.got(t)
			if redis != *rounds || posts != *rounds {
				t.Errorf("of %d rounds Redis has %d, the HTTP service %d", *rounds, redis, posts)
			}
			t.Logf("%d of %d, in %v", min(redis, posts), *rounds, time.Since(began).Round(time.Millisecond))
		})
	}
}

// lastcall with an app that has no socket for 3 s and then sends a request, next to a classic sidecar. The process that
// the hook left in its container shows that it lives; without it the sidecar stays as long as possible.
func TestLastWordsOfASlowApp(t *testing.T) {
	t.Parallel()
	for _, w := range []way{ours[len(ours)-1], unseen} {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			p := newPod(t, redirectOutbound...)
			words := p.newWorld(true).words
			words.Round, words.Pause = 1, 3*time.Second
			a := p.begin(w, words)
			began := time.Now()
			app, sidecar := p.end(t, w, a)
			if failed := a.failed(); len(failed) > 0 {
				t.Errorf("lost: %q", failed)
			}
			t.Logf("the app went after %v, the sidecar %v later", app.Gone.Sub(began).Round(time.Millisecond), sidecar.Gone.Sub(app.Gone).Round(time.Millisecond))
			if isSeen := strings.Contains(p.sidecar.log.String(), `msg="app exited"`); isSeen == (w.name == unseen.name) {
				t.Errorf("the end of the app was seen: %v", isSeen)
			}
		})
	}
}
