package pipe

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
)

// subscribed is an app of HTTP/2 whose first stream is a subscription, of which the test writes the events, and whose
// others the test answers.
type subscribed struct {
	net.Addr
	frames   chan *http2.Framer
	requests chan uint32
}

func startSubscribed(t *testing.T, events string) *subscribed {
	a := &subscribed{frames: make(chan *http2.Framer, 1), requests: make(chan uint32, 4)}
	a.Addr = startApp(t, func(c net.Conn) {
		f := serveFrames(c)
		id := nextRequest(f)
		respond(f, id, false, ":status", "200", "content-type", "text/event-stream")
		_ = f.WriteData(id, false, []byte(events))
		a.frames <- f
		for id := nextRequest(f); id > 0; id = nextRequest(f) {
			a.requests <- id
		}
		_, _ = io.Copy(io.Discard, c)
	})
	return a
}

// subscribe opens the subscription and reads its first events.
func (r *raw) subscribe(events string) {
	r.t.Helper()
	r.headers(1, true, ":method", "GET", ":scheme", "http", ":authority", "app", ":path", "/events")
	r.untilData(events)
}

// With CloseEarly the subscriptions of a connection end when nothing else is open on it, at the end of an event, with
// the last GOAWAY: whatever the client does at a GOAWAY.
func TestH2EventStreamsCloseEarly(t *testing.T) {
	clients := map[string][]http2.Setting{"unknown": nil, "hyper-h2": {{ID: 1, Val: 4096}, {ID: 4, Val: 65535}, {ID: 5, Val: 16384}},
		"curl": {{ID: 3, Val: 100}, {ID: 2, Val: 0}}}
	for client, settings := range clients {
		for _, tt := range []struct {
			name, events, rest string
			other              bool // another request is open
			later              bool // the subscription begins after the others have ended
		}{
			{"between two events", "data: 1\n\n", "", false, false},
			{"within an event", "data: 1\n", "\n", false, false},
			{"while a request is open", "data: 1\n\n", "", true, false},
			{"begun later", "data: 1\n\n", "", false, true},
		} {
			t.Run(client+", "+tt.name, func(t *testing.T) {
				t.Parallel()
				app := startSubscribed(t, tt.events)
				p := startPipe(t, app, HTTP, func(c *Config) { c.EventStreams, c.Spread = CloseEarly, time.Millisecond })
				r := dialRaw(t, p, settings...)
				if tt.later {
					_ = p.Drain(ctx)
					_ = p.CloseIdle(ctx, time.Minute)
				}
				r.subscribe(tt.events)
				f := <-app.frames
				if tt.other {
					r.request(3, true, ":path", "/other")
					<-app.requests
				}
				if !tt.later {
					_ = p.Drain(ctx)
					_ = p.CloseIdle(ctx, 0)
				}
				if tt.other || tt.rest != "" {
					polltest.Eventually(t, "the end is requested", p.all()[0].lastWordRequested.Load)
					awaitActivity(t, p, 1, 1)
				}
				if tt.rest != "" {
					_ = f.WriteData(1, false, []byte(tt.rest))
				}
				if tt.other {
					respond(f, 3, true, ":status", "200")
				}
				got := strings.Join(r.frames(), "\n")
				end, last := strings.LastIndex(got, "DATA 1 "), strings.Index(got, " NO_ERROR")
				if first := strings.Index(got, "GOAWAY 2147483647"); first >= 0 {
					last = max(last, strings.LastIndex(got, " NO_ERROR"))
				}
				if end < 0 || !strings.Contains(got[end:], `DATA 1 "retry: `) || !strings.Contains(got[end:], "end=true") || last < end || strings.Contains(got, "RST") {
					t.Errorf("got\n%s", got)
				}
				if answer := strings.Index(got, "HEADERS 3 end=true :status=200"); tt.other && (answer < 0 || answer > end) {
					t.Errorf("the other request has no response before the end:\n%s", got)
				}
				awaitActivity(t, p, 0, 0)
				wantEndings(t, lastCall(t, p, time.Second)())
			})
		}
	}
}

// A drain that is cancelled while the event is incomplete ends no subscription over HTTP/2, and Wait ends none at all.
func TestH2EventStreamsStay(t *testing.T) {
	for _, when := range []LongLived{CloseEarly, Wait} {
		events := "data: 1\n\n"
		if when == CloseEarly {
			events = "data: 1\n"
		}
		app := startSubscribed(t, events)
		p := startPipe(t, app, HTTP, func(c *Config) { c.EventStreams, c.Spread = when, time.Millisecond })
		r := dialRaw(t, p)
		r.subscribe(events)
		f := <-app.frames
		_ = p.Drain(ctx)
		_ = p.CloseIdle(ctx, 0)
		if when == CloseEarly {
			polltest.Eventually(t, "the end is requested", p.all()[0].lastWordRequested.Load)
			if err := p.Resume(ctx); err != nil {
				t.Fatal(err)
			}
		}
		_ = f.WriteData(1, false, []byte("\ndata: 2\n\n"))
		r.untilData("data: 2\n\n")
		awaitActivity(t, p, 1, 1)
	}
}
