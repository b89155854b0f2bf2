package http2

import (
	"encoding/binary"
	"testing"
	"time"
)

// What the programs sent on a connection of their own, recorded in November 2026.
func TestClientBySettings(t *testing.T) {
	const unknown Client = 0
	for program, tt := range map[string]struct {
		settings []setting
		want     Client
	}{
		"Python httpx 0.28.1":     {[]setting{{1, 4096}, {2, 0}, {4, 65535}, {5, 16384}, {3, 100}, {6, 65536}}, Abrupt},
		"Java 17.0.15":            {[]setting{{1, 16384}, {2, 0}, {3, 0}, {4, 1 << 24}, {5, 16384}, {6, 393216}}, Abrupt},
		"undici 7.30.2":           {[]setting{{2, 0}, {4, 1 << 18}}, Abrupt},
		"curl 7.88.1":             {[]setting{{3, 100}, {4, 1 << 25}, {2, 0}}, Orderly},
		"net/http of Go 1.26":     {[]setting{{2, 0}, {4, 4 << 20}, {5, 16384}, {6, 10 << 20}}, Orderly},
		"Chromium 156":            {[]setting{{1, 1 << 16}, {2, 0}, {4, 6 << 20}, {6, 1 << 18}}, Orderly},
		"Envoy 1.40":              {[]setting{{2, 0}, {1, 4096}, {8, 0}, {3, 1024}, {4, 1 << 24}}, Orderly},
		"HAProxy":                 {[]setting{{2, 0}, {8, 1}, {3, 100}}, Orderly},
		"OkHttp 4.12.0":           {[]setting{{4, 1 << 24}}, unknown},
		"Apache HttpClient 5.4":   {[]setting{{1, 8192}, {2, 1}, {3, 250}, {4, 65535}, {5, 65536}, {6, 1<<24 - 1}}, unknown},
		"Reactor Netty 1.2.1":     {[]setting{{6, 8192}}, unknown},
		"Jetty 12.0.15":           {[]setting{{3, 32}, {4, 8 << 20}}, unknown},
		"h2load 1.52.0":           {[]setting{{2, 0}, {4, 1<<30 - 1}}, unknown},
		"Node's node:http2 20.20": {nil, unknown},
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
		if due, again := tt.client.Due(tt.m); due != tt.due || again != tt.again {
			t.Errorf("%s: %v, %v; want %v, %v", tt.name, due, again, tt.due, tt.again)
		}
	}
}

func TestLastStream(t *testing.T) {
	for _, tt := range []struct{ forwarded, appLast, want uint32 }{
		{7, MaxStreamID, 7}, {7, 5, 5}, {7, 9, 7}, {0, MaxStreamID, 0},
	} {
		if got := LastStream(tt.forwarded, tt.appLast); got != tt.want {
			t.Errorf("forwarded %d, the app's %d: %d, want %d", tt.forwarded, tt.appLast, got, tt.want)
		}
	}
}
