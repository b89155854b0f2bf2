package http2

import (
	"testing"
	"time"
)

func TestClientOf(t *testing.T) {
	for agent, want := range map[string]Client{
		"": Abrupt, "Java-http-client/17.0.8": Abrupt, "python-httpx/0.27": Abrupt, "node": Abrupt, "undici": Abrupt,
		"curl/8.5": Orderly, "grpc-go/1.70": Orderly, "Go-http-client/2.0": Orderly,
	} {
		if got := ClientOf([]byte(agent)); got != want {
			t.Errorf("%q: %d, want %d", agent, got, want)
		}
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
		{"abrupt, with open requests", Abrupt, Moment{Open: 1, Draining: time.Minute, Closing: abruptPatience}, false, 0},
		{"abrupt, after its patience", Abrupt, Moment{Open: 1, Draining: time.Minute, Closing: abruptPatience + 1}, true, 0},
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
