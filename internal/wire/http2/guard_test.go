package http2

import (
	"encoding/binary"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestGuard(t *testing.T) {
	const fresh, old = time.Duration(0), PrematureTime
	limits := DefaultLimits()
	check := func(g *Guard, flags byte) error { return g.Check(FrameHeader{Type: Ping, Length: 8, Flags: flags}) }
	for name, step := range map[string]func(g *Guard, i int) error{
		"PING that is answered": func(g *Guard, _ int) error {
			defer g.Answered()
			return check(g, 0)
		},
		"streams reset after their end":     func(g *Guard, _ int) error { return errors.Join(g.StreamBegins(1), g.StrayReset()) },
		"acknowledgements of the client":    func(g *Guard, _ int) error { return check(g, FlagAck) },
		"streams reset late":                func(g *Guard, _ int) error { return errors.Join(g.StreamBegins(1), g.StreamReset(old, false)) },
		"two of five streams reset at once": twoOfFive,
	} {
		t.Run(name, func(t *testing.T) {
			g := &Guard{Limits: &limits}
			for i := range 100_000 {
				if err := step(g, i); err != nil {
					t.Fatalf("step %d: %v", i, err)
				}
			}
			// Earlier good conduct must not count for long.
			for i := 0; !errors.Is(errors.Join(g.StreamBegins(1), g.StreamReset(fresh, false)), FloodResets); i++ {
				if i > 4*limits.MaxResets {
					t.Fatal("a flood of resets after that is not detected")
				}
			}
		})
	}
}

func twoOfFive(g *Guard, i int) error {
	if err := g.StreamBegins(1); err != nil || i%5 > 1 {
		return err
	}
	return g.StreamReset(0, false)
}

// A stream may send what the client has allowed for certain: a larger first window counts when the client knows that it
// has arrived, a smaller one at once.
func TestWindows(t *testing.T) {
	first := func(n uint32) []byte {
		return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(nil, settingInitialWindowSize), n)
	}
	w := NewWindows()
	var stream Window
	want := func(allowed int) {
		t.Helper()
		if !w.Allow(stream, allowed) || w.Allow(stream, allowed+1) {
			t.Errorf("%+v, %d: does not allow exactly %d", w, stream, allowed)
		}
	}
	want(65535)
	stream.Sends(65000)
	w.Conn.Sends(65000)
	want(535)
	stream.Grows(1000)
	want(535)
	w.Conn.Grows(1 << 20)
	want(1535)
	w.Announce(first(100_000))
	want(1535)
	w.Acknowledge()
	want(1535 + 100_000 - 65535)
	w.Announce(first(65535))
	want(1535)
	w.Announce(first(200_000))
	w.Acknowledge()
	want(1535)
	w.Acknowledge()
	want(1535 + 200_000 - 65535)
	w.Announce(first(0))
	if w.Allow(stream, 0) {
		t.Error("a window below zero allows an empty frame of data")
	}
}

// What the programs sent on a connection of their own, recorded in November 2026.
func TestClientBySettings(t *testing.T) {
	const unknown Client = 0
	for program, tt := range map[string]struct {
		settings []setting
		want     Client
	}{
		"Python httpx 0.28.1":                   {[]setting{{1, 4096}, {2, 0}, {4, 65535}, {5, 16384}, {3, 100}, {6, 65536}}, Abrupt},
		"grpclib 0.4.9":                         {[]setting{{1, 4096}, {2, 1}, {4, 65535}, {5, 16384}, {8, 0}, {3, 100}, {6, 65536}}, Abrupt},
		"hackney: h2_settings":                  {[]setting{{1, 4096}, {2, 0}, {3, 1<<32 - 1}, {4, 65535}, {5, 16384}, {6, 1<<32 - 1}, {8, 0}}, Abrupt},
		"Helidon 4.5.0":                         {[]setting{{2, 0}, {5, 16384}, {4, 65535}}, Abrupt},
		"Java 17.0.15, 25.0.3":                  {[]setting{{1, 16384}, {2, 0}, {3, 0}, {4, 1 << 24}, {5, 16384}, {6, 393216}}, Abrupt},
		"undici 7.30.2, 8.13.1":                 {[]setting{{2, 0}, {4, 1 << 18}}, Abrupt},
		"curl 7.88.1":                           {[]setting{{3, 100}, {4, 1 << 25}, {2, 0}}, Orderly},
		"net/http of Go 1.26":                   {[]setting{{2, 0}, {4, 4 << 20}, {5, 16384}, {6, 10 << 20}}, Orderly},
		"Chromium, niquests":                    {[]setting{{1, 1 << 16}, {2, 0}, {4, 6 << 20}, {6, 1 << 18}}, Orderly},
		"Envoy 1.40":                            {[]setting{{2, 0}, {1, 4096}, {8, 0}, {3, 1024}, {4, 1 << 24}}, Orderly},
		"Envoy, 256 KiB window":                 {[]setting{{2, 0}, {1, 4096}, {8, 0}, {3, 1024}, {4, 1 << 18}}, Orderly},
		"HAProxy":                               {[]setting{{2, 0}, {8, 1}, {3, 100}}, Orderly},
		"OkHttp 4.12.0, 5.5.1":                  {[]setting{{4, 1 << 24}}, Orderly},
		"Apache HttpClient 5.6":                 {[]setting{{1, 8192}, {2, 1}, {3, 250}, {4, 65535}, {5, 65536}, {6, 1<<24 - 1}, {9, 1}}, Abrupt},
		"Reactor Netty 1.2.1":                   {[]setting{{6, 8192}}, Orderly},
		"Reactor Netty 1.3.7":                   {[]setting{{3, 100}, {6, 8192}}, Orderly},
		"Vert.x 4.5.14":                         {[]setting{{6, 8192}}, Orderly},
		"Vert.x 5.2.3":                          {[]setting{{4, 1 << 20}}, Orderly},
		"Armeria 1.34.1":                        {[]setting{{2, 0}, {4, 1 << 20}, {6, 8192}}, Orderly},
		"got 16.1.0":                            {[]setting{{2, 0}, {4, 1 << 25}}, Orderly},
		"Jetty 12.0, 12.1":                      {[]setting{{3, 32}, {4, 8 << 20}}, Abrupt},
		"nghttp 1.52.0":                         {[]setting{{3, 100}, {4, 65535}}, Orderly},
		"h2load 1.52.0":                         {[]setting{{2, 0}, {4, 1<<30 - 1}}, unknown},
		"node:http2 20.20":                      {nil, Orderly},
		"reqwest 0.12.28":                       {[]setting{{2, 0}, {4, 2 << 20}, {5, 16384}, {6, 16384}}, Orderly},
		"reqwest 0.13.5, http2_adaptive_window": {[]setting{{2, 0}, {4, 65535}, {5, 16384}, {6, 16384}}, Orderly},
		"AsyncHTTPClient":                       {[]setting{{3, 100}, {6, 1 << 16}, {2, 0}}, Orderly},
		".NET":                                  {[]setting{{2, 0}, {4, 65535}}, Orderly},
		"a header table of 4 K":                 {[]setting{{1, 4096}}, unknown},
		"a window of 16 MiB":                    {[]setting{{2, 0}, {4, 1 << 24}}, unknown},
	} {
		var payload []byte
		for _, s := range tt.settings {
			payload = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(payload, s.id), s.value)
		}
		if got := ClientBySettings(payload); got != tt.want {
			t.Errorf("%s: %d, want %d", program, got, tt.want)
		}
	}
	if unknown.Requested(false, false) != unknown || unknown.Requested(true, false) != Orderly ||
		unknown.Requested(false, true) != Orderly || Abrupt.Requested(true, true) != Abrupt {
		t.Error("gRPC and proxies are orderly unless their SETTINGS say otherwise, all others unknown")
	}
}

func TestDue(t *testing.T) {
	for _, tt := range []struct {
		name   string
		client Client
		m      Moment
		due    bool
		again  time.Duration
	}{
		{"orderly, with open requests", Orderly, Moment{Open: 3}, true, 0},
		{"unknown, with open requests", 0, Moment{Open: 1, Draining: time.Minute}, false, patience},
		{"unknown, while idle connections are closed", 0, Moment{Open: 1, Draining: time.Minute, Closing: patience - 1}, false, 1},
		{"unknown, after its patience", 0, Moment{Open: 1, Draining: time.Minute, Closing: patience}, true, 0},
		{"abrupt, with open requests", Abrupt, Moment{Open: 1, Draining: time.Hour, Closing: time.Hour}, false, 0},
		{"abrupt, idle for a moment", Abrupt, Moment{Idle: 20 * time.Millisecond}, false, 30 * time.Millisecond},
		{"abrupt, idle for long", Abrupt, Moment{Idle: longRest}, true, 0},
		{"abrupt, late in the drain", Abrupt, Moment{Idle: longRest / 4, Draining: 2 * halfRest}, true, 0},
		{"abrupt, very late in the drain", Abrupt, Moment{Draining: 100 * time.Hour}, true, 0},
		{"unknown, idle for a moment", 0, Moment{Idle: longRest - 1}, false, 1},
	} {
		if due, again := tt.client.due(tt.m); due != tt.due || again != tt.again {
			t.Errorf("%s: %v, %v; want %v, %v", tt.name, due, again, tt.due, tt.again)
		}
	}
}

func TestClosing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type next struct {
			due   Step
			again time.Duration
		}
		want := func(c *Closing, m Moment, want next) {
			t.Helper()
			if due, again := c.Next(m); due != want.due || again != want.again {
				t.Errorf("%+v: %d, %v; want %+v", m, due, again, want)
			}
		}
		orderly := Closing{Client: Orderly}
		want(&orderly, Moment{Open: 1}, next{Announce, AnnounceTime})
		time.Sleep(AnnounceTime / 4)
		want(&orderly, Moment{Open: 1}, next{Wait, 0})
		want(&orderly, Moment{}, next{Wait, AnnounceTime * 3 / 4})
		time.Sleep(AnnounceTime * 3 / 4)
		want(&orderly, Moment{Open: 1}, next{Wait, 0})
		want(&orderly, Moment{}, next{End, 0})
		orderly.SentLast()
		want(&orderly, Moment{}, next{Wait, 0})

		abrupt := Closing{Client: Abrupt}
		want(&abrupt, Moment{Open: 1}, next{Wait, 0})
		want(&abrupt, Moment{Idle: longRest}, next{End, 0})
	})
}
