package envoy

import (
	"fmt"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
)

// book is a ledger with a clock of its own.
type book struct {
	*ledger
	t   *testing.T
	now time.Time
}

const (
	httpPort   = 80
	mixedPort  = 81
	opaquePort = 82
)

func newBook(t *testing.T) *book {
	listeners := []Listener{
		{Addresses: at("0.0.0.0:80"), HTTP: []string{"h"}, Known: true, Stats: "80"},
		{Addresses: at("0.0.0.0:81"), HTTP: []string{"m"}, Opaque: true, Known: true, Stats: "81"},
		{Addresses: at("0.0.0.0:82"), Opaque: true, Known: true, Stats: "82"},
	}
	return &book{newLedger(layOut(listeners, show(listeners...), nil, true)), t, time.Unix(1000, 0)}
}

// see takes a look, so long after the last one.
func (b *book) see(after time.Duration, sockets ...sockdiag.Socket) {
	b.now = b.now.Add(after)
	b.look(sockets, b.now)
}

// answered is a response of Envoy that took 1 ms.
func (b *book) answered(stats Stats) {
	b.t.Helper()
	b.answeredIn(stats, question{}, time.Millisecond, time.Millisecond)
	b.now = b.now.Add(time.Millisecond)
}

func (b *book) answeredIn(stats Stats, q question, took, cpu time.Duration) {
	b.t.Helper()
	stats[ownRequest] = 1
	must.Do(b.t, b.stats(stats, q, b.now, took, cpu))
}

// settles has Envoy respond once bytes have not moved for a while, and the response stay valid.
func (b *book) settles(stats Stats, sockets ...sockdiag.Socket) {
	b.t.Helper()
	b.see(settle, sockets...)
	b.answered(stats)
	b.see(settle, sockets...)
}

// settled has connections open, and then settles.
func (b *book) settled(stats Stats, sockets ...sockdiag.Socket) {
	b.t.Helper()
	b.see(0, sockets...)
	b.settles(stats, sockets...)
}

func (b *book) want(busy int) {
	b.t.Helper()
	if a := b.activity(); !a.Known || a.Busy != busy {
		b.t.Errorf("%+v; want %d busy", a, busy)
	}
}

func (b *book) wantDue(want bool) {
	b.t.Helper()
	if got := b.due(b.now); got != want {
		b.t.Errorf("due: %v", got)
	}
}

// open is an open connection on which n bytes came, the last long ago.
func open(cookie uint64, port uint16, n uint64) sockdiag.Socket {
	return sockdiag.Socket{
		State: sockdiag.Established, Cookie: cookie, Local: at(fmt.Sprint("10.0.0.1:", port))[0],
		Remote:   at("10.0.0.2:1000")[0],
		Received: n, LastReceived: time.Hour, LastSent: time.Hour, LastAcked: time.Hour,
	}
}

func with(s sockdiag.Socket, f func(*sockdiag.Socket)) sockdiag.Socket {
	f(&s)
	return s
}

var (
	idleStats = func() Stats {
		return Stats{"http.h.downstream_rq_active": 0, "http.m.downstream_rq_active": 0,
			"http.m.downstream_cx_active": 0}
	}
	rq = func(name string, n int64) Stats { s := idleStats(); s[name] = n; return s }
)

// A connection with moved bytes is busy until Envoy has responded, and the response has stayed valid.
func TestIdleHTTP(t *testing.T) {
	b := newBook(t)
	b.see(0, open(1, httpPort, 100))
	b.want(1)
	b.wantDue(false) // Envoy may not have read it
	b.see(settle, open(1, httpPort, 100))
	b.wantDue(true)
	b.answered(idleStats())
	b.want(1) // its answer's last bytes may be on their way to the kernel
	b.wantDue(false)
	b.see(settle, open(1, httpPort, 100))
	b.want(0)
	if a := b.activity(); a.Connections != 1 || a.Arrivals != 1 {
		t.Errorf("%+v", a)
	}
	b.see(time.Hour, open(1, httpPort, 100))
	b.want(0)
	b.wantDue(false) // nothing has moved: nothing to ask
}

func TestBytesMoveAfterTheAnswer(t *testing.T) {
	for name, change := range map[string]func(*sockdiag.Socket){
		"a request":                     func(s *sockdiag.Socket) { s.Received++; s.LastReceived = 0 },
		"a request that is not read":    func(s *sockdiag.Socket) { s.ReadQueue = 1 },
		"an answer":                     func(s *sockdiag.Socket) { s.Acked++; s.LastAcked = 0 },
		"an answer that is not taken":   func(s *sockdiag.Socket) { s.WriteQueue = 1 },
		"another connection, moved too": func(s *sockdiag.Socket) { s.Cookie = 2 },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBook(t)
			b.see(0, open(1, httpPort, 100))
			b.see(settle, open(1, httpPort, 100))
			b.answered(idleStats())
			b.see(settle-time.Millisecond, with(open(1, httpPort, 100), change))
			b.want(1)
			b.see(time.Millisecond, with(open(1, httpPort, 100), change))
			b.want(1)
		})
	}
}

// A slow reader's answer may lie in Envoy, whose stats have done with it.
func TestUnsent(t *testing.T) {
	b := newBook(t)
	slow := with(open(1, httpPort, 100), func(s *sockdiag.Socket) { s.WriteQueue = 1 << 20 })
	b.see(0, slow)
	for range 100 {
		b.see(time.Second, slow)
		b.want(1)
		b.wantDue(false)
	}
}

// Ended connections count until what they owe is delivered.
func TestOwed(t *testing.T) {
	b := newBook(t)
	ended := with(open(1, httpPort, 100), func(s *sockdiag.Socket) { s.State = sockdiag.FinWait1; s.WriteQueue = 1000 })
	b.see(0, ended)
	b.want(1)
	b.see(0, with(ended, func(s *sockdiag.Socket) { s.WriteQueue = 1 })) // the FIN
	b.want(0)
}

func TestBusyHTTP(t *testing.T) {
	b := newBook(t)
	two := []sockdiag.Socket{open(1, httpPort, 100), open(2, httpPort, 100)}
	b.see(0, two...)
	b.want(2) // never asked: all may be
	b.settles(rq("http.h.downstream_rq_active", 1), two...)
	b.want(1)
	b.see(time.Second, two[:1]...) // one has gone; which, Envoy has to say
	b.want(1)
	b.wantDue(false)
	b.settles(idleStats(), two[:1]...)
	b.want(0)
}

// What a mixed listener has open and no HTTP connection accounts for is busy.
func TestMixed(t *testing.T) {
	b := newBook(t)
	three := []sockdiag.Socket{open(1, mixedPort, 1), open(2, mixedPort, 1), open(3, mixedPort, 1)}
	b.settled(rq("http.m.downstream_cx_active", 2), three...)
	b.want(1)
	b.settled(rq("http.m.downstream_cx_active", 2), three[:2]...)
	b.want(0)
}

// Answers that are none make everything busy.
func TestGarbage(t *testing.T) {
	for name, stats := range map[string]Stats{
		"nothing":             {},
		"another program's":   {"up": 1},
		"not what was before": {ownRequest: 1, "http.m.downstream_rq_active": 0, "http.m.downstream_cx_active": 0},
		"below zero": {ownRequest: 1, "http.h.downstream_rq_active": -1, "http.m.downstream_rq_active": 0,
			"http.m.downstream_cx_active": 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBook(t)
			two := []sockdiag.Socket{open(1, httpPort, 1), open(2, httpPort, 1)}
			b.settled(idleStats(), two...)
			b.want(0)
			b.moved(b.now)
			b.see(time.Second, two...)
			if err := b.stats(stats, question{}, b.now, time.Millisecond, time.Millisecond); err == nil {
				t.Fatal("believed")
			}
			b.see(settle, two...)
			b.want(2)
			b.see(time.Second, two...)
			b.wantDue(true)
			b.answered(idleStats())
			b.see(settle, two...)
			b.want(0)
		})
	}
}

// Without the gauge of the question itself, every gauge must be there.
func TestGarbageWithoutOwnRequest(t *testing.T) {
	l := Listener{Addresses: at("0.0.0.0:80"), HTTP: []string{"h"}, Known: true, Stats: "80"}
	shown := show(l)
	delete(shown, ownRequest)
	g := newLedger(layOut([]Listener{l}, shown, nil, true))
	if g.layout.usedOnly {
		t.Error("unused stats are left out")
	}
	if err := g.stats(Stats{}, question{}, time.Unix(1, 0), 0, 0); err == nil {
		t.Error("nothing is believed")
	}
	if err := g.stats(Stats{"http.h.downstream_rq_active": 0}, question{}, time.Unix(1, 0), 0, 0); err != nil {
		t.Error(err)
	}
}

// Questions cost Envoy an eighth of a per cent at most, whatever moves.
func TestRest(t *testing.T) {
	b := newBook(t)
	b.see(0, open(1, httpPort, 1))
	b.see(settle, open(1, httpPort, 1))
	b.answeredIn(rq("http.h.downstream_rq_active", 1), question{}, time.Second, 6*time.Millisecond)
	if !b.question(b.now).gaugesOnly {
		t.Error("counters are read at any price")
	}
	b.see(5680*time.Millisecond, with(open(1, httpPort, 2), func(s *sockdiag.Socket) { s.LastReceived = 0 }))
	b.see(100*time.Millisecond, open(1, httpPort, 2))
	b.wantDue(false)
	b.see(30*time.Millisecond, open(1, httpPort, 2))
	b.wantDue(true)
}

// A hook runs for seconds: it may ask again soon, also where each response waits for a processor.
func TestRestOfAHook(t *testing.T) {
	b := newBook(t)
	b.hook = true
	b.see(0, open(1, httpPort, 1))
	b.see(settle, open(1, httpPort, 1))
	b.answeredIn(rq("http.h.downstream_rq_active", 1), question{}, 50*time.Millisecond, 50*time.Millisecond)
	b.see(restHook, with(open(1, httpPort, 2), func(s *sockdiag.Socket) { s.LastReceived = settle }))
	b.wantDue(false)
	b.see(50*time.Millisecond, open(1, httpPort, 2))
	b.wantDue(true)
}

// Pings of a thousand idle HTTP/2 connections leave gaps, and the kernel shows
// the time of each: they do not keep everything busy.
func TestPings(t *testing.T) {
	b := newBook(t)
	b.see(0, open(1, httpPort, 0))
	for i := range uint64(100) { // each look finds that something came 45 ms ago
		b.see(time.Second, with(open(1, httpPort, i),
			func(s *sockdiag.Socket) { s.LastReceived = 45 * time.Millisecond }))
	}
	b.wantDue(true)
	b.answered(idleStats())
	b.see(settle, with(open(1, httpPort, 99), func(s *sockdiag.Socket) { s.LastReceived = 75 * time.Millisecond }))
	b.want(0)
}

// wantSoon checks when the next look may bring certainty, from now; negative: not at all.
func (b *book) wantSoon(want time.Duration) {
	b.t.Helper()
	at := b.soon()
	if got := at.Sub(b.now); at.IsZero() != (want < 0) || want >= 0 && got != want {
		b.t.Errorf("look again in %v, want %v", got, want)
	}
}

// An answer that no longer holds is no reason to put the next look off.
func TestSoon(t *testing.T) {
	b := newBook(t)
	b.see(0, open(1, httpPort, 1), open(2, httpPort, 1))
	b.wantSoon(settle)
	b.see(settle, open(1, httpPort, 1), open(2, httpPort, 1))
	b.answered(rq("http.h.downstream_rq_active", 1))
	b.see(2*time.Second, open(1, httpPort, 1), open(2, httpPort, 1))
	b.wantSoon(-1) // busy for sure
	b.see(time.Second, open(1, httpPort, 1))
	b.wantSoon(settle)
}

// While bytes keep moving, looks are not made more often than otherwise.
func TestSoonBacksOff(t *testing.T) {
	b := newBook(t)
	moves := func(n uint64) sockdiag.Socket {
		return with(open(1, httpPort, n), func(s *sockdiag.Socket) { s.LastReceived = 0 })
	}
	for i := range uint64(10) {
		b.see(quiet/4, moves(i))
		b.see(settle, open(1, httpPort, i)) // still, but not for long
	}
	b.wantSoon(settle<<(maxMoves-1) - settle)
	b.hook = true
	b.wantSoon(settle<<(maxHookMoves-1) - settle)
	b.see(quiet, moves(10))
	b.wantSoon(settle)
}
