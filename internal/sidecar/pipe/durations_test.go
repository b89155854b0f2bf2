package pipe

import (
	"testing"

	"github.com/lastcall-dev/lastcall/internal/sidecar/counters"
)

// Each request is counted once, by what its client got.
func TestDurations(t *testing.T) {
	p := startPipe(t, answering(t, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"), HTTP)
	c := dialPipe(t, p)
	for range 2 {
		c.wantOK()
	}
	c.send("bad\r\n\r\n")
	c.rest()
	_ = c.Close()
	gone := startPipe(t, answering(t, "HTTP/1.1 500 Bad\r\nContent-Length: 20\r\nConnection: close\r\n\r\nok"), HTTP)
	c = dialPipe(t, gone)
	c.send(get("/truncated"))
	c.rest()
	_ = c.Close()
	g := startGate(t)
	unanswered := startPipe(t, g, HTTP)
	c = dialPipe(t, unanswered)
	c.send(get("/"))
	<-g.requests
	_ = c.SetLinger(0) // a FIN would be a half-close, after which the app may answer
	_ = c.Close()
	for _, want := range []struct {
		p     *Pipe
		class int
		count uint64
	}{{p, 2, 2}, {gone, 5, 1}, {unanswered, 0, 1}} {
		awaitActivity(t, want.p, 0, 0)
		want.p.Kill()
		got := want.p.Durations(0)
		if len(got) != 1 || got[0].Protocol != "http/1.1" || got[0].Class != want.class || got[0].Count != want.count || got[0].Sum <= 0 ||
			got[0].Buckets[len(counters.Bounds)-1] != want.count {
			t.Errorf("%+v, want %d of class %d", got, want.count, want.class)
		}
	}
}
