package envoy

import (
	"testing"
	"time"
)

func TestArrivals(t *testing.T) {
	b := newBook(t)
	check := func(want uint64) {
		t.Helper()
		if got := b.activity().Arrivals; got != want {
			t.Errorf("%d arrivals; want %d", got, want)
		}
	}
	b.see(0, open(1, httpPort, 1))
	check(1)
	b.said(rq("http.h.downstream_rq_total", 40)) // before us
	check(1)
	b.said(rq("http.h.downstream_rq_total", 42))
	check(3)
	b.see(0, open(2, httpPort, 1)) // the first has gone, another has come
	check(4)
	s := rq("http.h.downstream_rq_active", 2)
	s[ownRequest] = 1
	if err := b.stats(s, true, b.now, 10*time.Millisecond, 10*time.Millisecond); err != nil { // gauges only
		t.Fatal(err)
	}
	check(6)
	b.use(b.layout)
	b.said(rq("http.h.downstream_rq_total", 50))
	check(6)
}

// What only Envoy sees is believed idle when it says so twice.
func TestUnseen(t *testing.T) {
	l := Listener{Name: "quic", HTTP: []string{"q"}, Known: true, Unseen: true, Stats: "udp"}
	b := &book{newLedger(layOut([]Listener{l}, show(l), nil, true)), t, time.Unix(1000, 0)}
	say := func(connections, http, requests int64) {
		b.said(Stats{
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
	b.wantDue(true) // for ever
	say(3, 2, 0)    // one is no HTTP
	b.see(time.Second)
	say(3, 2, 0)
	b.see(settle)
	b.want(1)
	b.forget()
	b.want(3)
}

// Of what nothing can be known is busy for ever.
func TestUnknown(t *testing.T) {
	l := Listener{Name: "quic", HTTP: []string{"q"}, Known: true, Unseen: true, Stats: "udp"}
	b := &book{newLedger(layOut([]Listener{l}, nil, nil, true)), t, time.Unix(1000, 0)}
	b.see(time.Hour)
	b.want(1)
	b.wantDue(false)
}
