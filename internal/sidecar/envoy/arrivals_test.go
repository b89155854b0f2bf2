package envoy

import (
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
)

func TestArrivals(t *testing.T) {
	b := newBook(t)
	b.see(0, open(1, httpPort, 1))
	b.wantArrivals(1)
	b.answered(rq("http.h.downstream_rq_total", 40)) // before us
	b.wantArrivals(1)
	b.answered(rq("http.h.downstream_rq_total", 42))
	b.wantArrivals(3)
	b.see(0, open(2, httpPort, 1)) // the first has gone, another has come
	b.wantArrivals(4)
	b.use(b.layout)
	b.answered(rq("http.h.downstream_rq_total", 50))
	b.wantArrivals(4)
}

// What only Envoy sees is idle after two equal responses.
func TestUnseen(t *testing.T) {
	l := Listener{Name: "quic", HTTP: []string{"q"}, Known: true, Unseen: true, Stats: "udp"}
	b := &book{newLedger(layOut([]Listener{l}, show(l), nil, true)), t, time.Unix(1000, 0)}
	say := func(connections, http, requests int64) {
		b.answered(Stats{
			"listener.udp.downstream_cx_active": connections, "http.q.downstream_cx_active": http, "http.q.downstream_rq_active": requests,
		})
	}
	b.see(0)
	b.want(1)
	b.wantDue(true)
	say(2, 2, 1)
	b.see(time.Second)
	b.want(1)
	b.wantDue(true)
	say(2, 2, 0)
	b.see(time.Second)
	b.want(1)
	say(2, 2, 0)
	b.see(settle)
	b.want(0)
	b.see(time.Second)
	b.wantDue(true) // without a limit
	say(3, 2, 0)    // one is no HTTP
	b.see(time.Second)
	say(3, 2, 0)
	b.see(settle)
	b.want(1)
	b.forget()
	b.want(3)
}

// Connections that nothing shows stay busy.
func TestUnknown(t *testing.T) {
	l := Listener{Name: "quic", HTTP: []string{"q"}, Known: true, Unseen: true, Stats: "udp"}
	b := &book{newLedger(layOut([]Listener{l}, nil, nil, true)), t, time.Unix(1000, 0)}
	b.see(time.Hour)
	b.want(1)
	b.wantDue(false)
}

// closed are destroyed sockets, as the kernel reports them.
func closed(cookies ...uint64) (out []sockdiag.Socket) {
	for _, cookie := range cookies {
		out = append(out, open(cookie, httpPort, 100))
	}
	return out
}

func (b *book) wantArrivals(want uint64) {
	b.t.Helper()
	if got := b.activity().Arrivals; got != want {
		b.t.Errorf("%d arrivals; want %d", got, want)
	}
}

// wantAsOf checks up to when the arrivals are complete; zero: up to the last look.
func (b *book) wantAsOf(want time.Time) {
	b.t.Helper()
	if got := b.activity().ArrivalsAsOf; !got.Equal(want) {
		b.t.Errorf("arrivals as of %v; want %v", got.Sub(b.now), want.Sub(b.now))
	}
}

// Connections that no look has shown are counted as they end, each connection once.
func TestConnectionsBetweenLooks(t *testing.T) {
	b := newBook(t)
	b.arrivals.count(true, b.now)
	b.see(0)
	b.ended(closed(1, 2), false, b.now)
	b.wantArrivals(2)
	b.see(time.Second, open(3, httpPort, 1), open(4, httpPort, 1))
	b.ended(closed(3), false, b.now) // reported before a look misses it
	b.see(time.Second, open(4, httpPort, 1))
	b.see(time.Second)
	b.ended(closed(4), false, b.now) // and after
	b.wantArrivals(4)
	b.ended(closed(5), true, b.now) // there were more
	b.wantArrivals(6)
	b.ended([]sockdiag.Socket{open(6, 8080, 1)}, false, b.now) // of a port that does not count
	b.wantArrivals(6)
	b.wantAsOf(time.Time{})
}

// The request that an answer has counted may be one of a connection that no look has
// shown: with its end the answer no longer holds.
func TestBusyBetweenLooks(t *testing.T) {
	b := newBook(t)
	b.arrivals.count(true, b.now)
	b.see(0, open(1, httpPort, 1))
	b.see(settle, open(1, httpPort, 1))
	b.answered(rq("http.h.downstream_rq_active", 1))
	b.see(time.Second, open(1, httpPort, 1))
	b.want(1)
	b.wantDue(false)
	b.ended(closed(2), false, b.now)
	b.see(settle, open(1, httpPort, 1))
	b.wantDue(true)
	b.answered(idleStats())
	b.see(settle, open(1, httpPort, 1))
	b.want(0)
}

// Where the kernel does not report destroyed sockets, Envoy's counters are read, and the
// count is complete up to then.
func TestCountersTellOfConnections(t *testing.T) {
	b := newBook(t)
	accepted := func(n int64) Stats { return rq("listener.80.downstream_cx_total", n) }
	b.arrivals.count(false, b.now)
	began := b.now
	b.see(0)
	b.wantAsOf(began)
	b.wantDue(true)
	b.answered(accepted(7))
	b.wantArrivals(0) // before the drain
	b.see(countShare*time.Millisecond - time.Millisecond)
	b.wantDue(false) // it has a price
	b.see(time.Millisecond)
	b.wantDue(true)
	requestedAt := b.now
	b.answered(accepted(7))
	b.wantAsOf(requestedAt)
	b.wantArrivals(0)
	b.see(time.Second, open(1, httpPort, 1)) // one is seen
	b.answered(accepted(10))
	b.wantArrivals(3)
	b.see(time.Second)
	b.see(time.Second, open(2, httpPort, 1))
	b.answered(accepted(11)) // it may be another than the one that was seen
	b.wantArrivals(5)
	must.Do(t, b.failed(b.now, time.Millisecond, nil))
	b.wantDue(false)
}

// Requests on an open connection only show in the counters, which are read
// although bytes still move.
func TestCountersTellOfRequests(t *testing.T) {
	b := newBook(t)
	b.arrivals.count(true, b.now)
	sent := uint64(1)
	chats := func(after time.Duration) {
		sent++
		b.see(after, with(open(1, httpPort, sent), func(s *sockdiag.Socket) { s.LastReceived = 0 }))
	}
	began := b.now
	chats(0)
	b.wantAsOf(began)
	b.wantDue(true)
	b.answered(rq("http.h.downstream_rq_total", 40))
	first := b.now.Add(-time.Millisecond)
	chats(10 * time.Millisecond)
	b.wantAsOf(first)
	b.wantDue(false)
	chats(countShare * time.Millisecond)
	b.wantDue(true)
	b.answered(rq("http.h.downstream_rq_total", 42))
	b.wantArrivals(3) // one of them the connection
	b.wantAsOf(time.Time{})
	chats(time.Second)
	b.answered(rq("http.h.downstream_rq_total", 42)) // bytes, but no request: a ping
	b.wantArrivals(3)
	if q := b.question(b.now); q.forCount {
		t.Error("asked again at once")
	}
}

// A request for the counters alone does not delay the request for the busy gauges.
func TestCountersHaveTheirOwnBudget(t *testing.T) {
	b := newBook(t)
	b.arrivals.count(false, b.now)
	b.see(0, open(1, httpPort, 1))
	q := b.question(b.now)
	if !q.forCount || q.gaugesOnly {
		t.Errorf("%+v", q)
	}
	b.answeredIn(rq("http.h.downstream_rq_active", 1), q, time.Second, 6*time.Millisecond)
	b.see(settle, open(1, httpPort, 1))
	b.wantDue(true)
	if q := b.question(b.now); q.forCount || !q.gaugesOnly {
		t.Errorf("%+v", q)
	}
}

// Where nothing counts connections, the count is never complete; where nothing counts
// requests, every word of a client may be one.
func TestNothingCounts(t *testing.T) {
	l := Listener{Addresses: at("0.0.0.0:80"), HTTP: []string{"h"}, Known: true, Stats: "80"}
	stats := show(l)
	delete(stats, "listener.80.downstream_cx_total")
	delete(stats, "http.h.downstream_rq_total")
	b := &book{newLedger(layOut([]Listener{l}, stats, nil, true)), t, time.Unix(1000, 0)}
	b.arrivals.count(false, b.now)
	began := b.now
	b.see(0)
	b.wantDue(false)
	b.wantAsOf(began)
	if !b.cannotCount() {
		t.Error("it claims to count")
	}
	b.see(time.Second, open(1, httpPort, 1))
	b.see(time.Second, open(1, httpPort, 2))
	b.wantArrivals(2)
	b.arrivals.count(true, began)
	b.wantAsOf(time.Time{})
}
