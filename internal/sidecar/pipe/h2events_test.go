package pipe

import (
	"cmp"
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/wire/eventstream"
)

var someRetry = regexp.MustCompile(`retry: \d+`)

// failureOf is the frame of the error event after the beginning of a body.
func failureOf(t *testing.T, media eventstream.Media, body string) string {
	t.Helper()
	s := eventstream.Follow(media, false)
	s.Follow([]byte(body))
	end := s.Ending()
	if end.Name != drain.EndingErrorEvent {
		t.Fatalf("ends with %+v", end)
	}
	return fmt.Sprintf("DATA 1 %q end=false\n", end.Last)
}

// An event stream over HTTP/2 ends at the last call as one over HTTP/1.1 does: with END_STREAM only where its client loses
// nothing by it, else with an error code, if possible after an error event. What is inserted fits the client's windows.
func TestH2EventStreams(t *testing.T) {
	t.Parallel()
	const (
		reset = "RST 1 INTERNAL_ERROR"
		token = `data: {"object":"chat.completion.chunk"}` + "\n\n"
		line  = `{"model":"m","created_at":"2026","done":false}` + "\n"
		retry = `DATA 1 "retry: N\n\n" end=true`
	)
	openAI := failureOf(t, eventstream.Events, token)
	ollama := failureOf(t, eventstream.JSONLines, line)
	for _, tt := range []struct {
		name, method, status, encoding string
		before, after                  string // of the body
		ends                           bool   // by END_STREAM with the rest
		want, ending                   string
	}{
		{"a subscription", "GET", "200", "", "data: 1\n\n", "", false, retry, ""},
		{"a subscription within an event", "GET", "200", "", "data: 1\n", "\n", false, `DATA 1 "\n" end=false` + "\n" + retry, ""},
		{"a subscription within an event that does not end", "GET", "200", "", "data: 1\n", "", false, reset, "reset"},
		{"a subscription that ends with its event", "GET", "200", "", "data: 1\n", "\n", true, `DATA 1 "\n" end=true`, ""},
		{"compressed", "GET", "200", "gzip", "data: 1\n\n", "", false, reset, "reset"},
		{"a failure", "GET", "500", "", "data: 1\n\n", "", false, reset, "reset"},
		{"an answer", "POST", "200", "", token, "", false, openAI + reset, "error event"},
		{"an answer to a GET", "GET", "200", "", token, "", false, openAI + reset, "error event"},
		{"an answer within an event", "POST", "200", "", token[:9], token[9:], false, fmt.Sprintf("DATA 1 %q end=false\n", token[9:]) + openAI + reset, "error event"},
		{"an answer within an event that does not end", "POST", "200", "", token + token[:9], "", false, reset, "reset"},
		{"an answer in lines", "POST", "200", "", line, "", false, ollama + reset, "error event"},
		{"lines of an export", "GET", "200", "", line, "", false, reset, "reset"},
		{"of no dialect", "POST", "200", "", "data: 1\n\n", "", false, reset, "reset"},
		{"a complete answer", "POST", "200", "", token + "data: [DONE]\n\n", "", false, `DATA 1 "" end=true`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			called := make(chan struct{})
			app := startApp(t, func(c net.Conn) {
				f := serveFrames(c)
				nextRequest(f)
				media := "text/event-stream; charset=utf-8"
				if strings.HasPrefix(tt.before, "{") {
					media = "application/x-ndjson"
				}
				respond(f, 1, false, ":status", tt.status, "content-type", media, "content-encoding", cmp.Or(tt.encoding, "identity"))
				_ = f.WriteData(1, false, []byte(tt.before))
				<-called
				if tt.after != "" {
					_ = f.WriteData(1, tt.ends, []byte(tt.after))
				}
				_, _ = io.Copy(io.Discard, c)
			})
			p, r := startRaw(t, app, HTTP)
			r.headers(1, true, ":method", tt.method, ":scheme", "http", ":authority", "app", ":path", "/events")
			r.untilData(tt.before)
			window := 50 * time.Millisecond
			if tt.after != "" {
				window = patience
			}
			report := lastCall(t, p, window)
			if tt.after != "" {
				awaitFinishing(t, p)
			}
			close(called)
			var got []string
			for _, f := range r.frames() {
				if !strings.HasPrefix(f, "GOAWAY") {
					got = append(got, f)
				}
			}
			if got := someRetry.ReplaceAllString(strings.Join(got, "\n"), "retry: N"); got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
			wantEndings(t, report(), tt.ending)
		})
	}
}

// Whatever the client has allowed, the pipe sends an error event only within the windows of its stream and of its
// connection, for each of the streams that share the latter.
func TestH2ErrorEventsFitTheWindows(t *testing.T) {
	const token = `data: {"object":"chat.completion.chunk"}` + "\n\n"
	last := len(failureOf(t, eventstream.Events, token)) // more than the event has: room for one, not for two
	for _, tt := range []struct {
		name           string
		stream, conn   int // what the client allows after the first token of each stream, bytes
		errors, resets int
	}{
		{"both allow them", 1 << 15, 1 << 15, 2, 2},
		{"the connection allows one", 1 << 15, last, 1, 2},
		{"the connection allows none", 1 << 15, 10, 0, 2},
		{"the streams allow none", 10, 1 << 15, 0, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sent := make(chan struct{})
			app := startApp(t, func(c net.Conn) {
				f := serveFrames(c)
				for range 2 {
					id := nextRequest(f)
					respond(f, id, false, ":status", "200", "content-type", "text/event-stream")
					_ = f.WriteData(id, false, []byte(token))
				}
				_ = f.WriteSettingsAck()
				fill := strings.Repeat(": \n", (1<<16-1-2*len(token)-tt.conn)/3) // of the connection's first window
				for ; len(fill) > 0; fill = fill[min(len(fill), 15000):] {
					_ = f.WriteData(5, false, []byte(fill[:min(len(fill), 15000)])) // of a stream that the client has reset
				}
				_ = f.WritePing(false, [8]byte{})
				close(sent)
				_, _ = io.Copy(io.Discard, c)
			})
			p := startPipe(t, app, HTTP)
			r := dialRaw(t, p, http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(len(token) + tt.stream)})
			r.request(1, true, ":path", "/a")
			r.request(3, true, ":path", "/b")
			r.until(func(f http2.Frame) bool { return f.Header().Type == http2.FramePing })
			<-sent
			report := lastCall(t, p, time.Second)
			frames := strings.Join(r.frames(), "\n")
			if got := strings.Count(frames, "server_shutting_down"); got != tt.errors {
				t.Errorf("%d error events, want %d:\n%s", got, tt.errors, frames)
			}
			if got := strings.Count(frames, "INTERNAL_ERROR"); got != tt.resets {
				t.Errorf("%d resets, want %d:\n%s", got, tt.resets, frames)
			}
			if left := report(); len(left) != 2 {
				t.Errorf("the report: %+v", left)
			}
		})
	}
}

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
	clients := map[string][]http2.Setting{"unknown": nil, "hyper-h2": hyper, "curl": curl}
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
		p, r := startRaw(t, app, HTTP, func(c *Config) { c.EventStreams, c.Spread = when, time.Millisecond })
		r.subscribe(events)
		f := <-app.frames
		_ = p.Drain(ctx)
		_ = p.CloseIdle(ctx, 0)
		if when == CloseEarly {
			polltest.Eventually(t, "the end is requested", p.all()[0].lastWordRequested.Load)
			must.Do(t, p.Resume(ctx))
		}
		_ = f.WriteData(1, false, []byte("\ndata: 2\n\n"))
		r.untilData("data: 2\n\n")
		awaitActivity(t, p, 1, 1)
	}
}
