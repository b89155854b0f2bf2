package pipe

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"
)

// chunk writes one chunk of a body.
func chunk(data string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(data), data) }

// chunkedHead is a head of a chunked response, with a Content-Type and more.
func chunkedHead(contentType string) string {
	return "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: " + contentType + "\r\n\r\n"
}

// How a stream ends at the last call depends on what it is and where it stands:
// only what has no end of its own may end as if it were whole.
func TestStreamsAtTheLastCall(t *testing.T) {
	events := chunkedHead("text/event-stream; charset=utf-8")
	for _, tt := range []struct {
		name          string
		head          string
		before, after string
		body          string // what the client reads
		whole         bool   // whether it sees a proper end
		ending        string
	}{
		{"between events", events, chunk("data: 1\n\n"), "", "data: 1\n\n", true, "ended"},
		{"between events, CRLF", events, chunk("data: 1\r\n\r\n"), "", "data: 1\r\n\r\n", true, "ended"},
		{"between events, CR", events, chunk("data: 1\r\r"), "", "data: 1\r\r", true, "ended"},
		{"an event in two chunks", events, chunk("data: 1\n") + chunk("\n"), "", "data: 1\n\n", true, "ended"},
		{"before the first event", events, chunk("\n\n"), "", "\n\n", true, "ended"},
		{"within an event that ends", events, chunk("data: 1\n"), chunk("\n"), "data: 1\n\n", true, "ended"},
		{"within a chunk that ends", events, "9\r\ndata:", " 1\n\n\r\n", "data: 1\n\n", true, "ended"},
		{"within an event that does not end", events, chunk("data: 1\n\ndata: 2\n"), "", "data: 1\n\ndata: 2\n", false, "truncated"},
		{"within a chunk that does not end", events, "ff\r\ndata: 1\n\n", "", "data: 1\n\n", false, "truncated"},
		{"compressed events", "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n", chunk("zz\n\n"), "", "zz\n\n", false, "truncated"},
		{"events until the end of the connection", "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n", "data: 1\n\n", "", "data: 1\n\n", true, "ended"},
		{"an export", chunkedHead("application/x-ndjson"), chunk("{}\n"), "", "{}\n", false, "truncated"},
		{"lines that never end, as configured", chunkedHead("application/x-tail"), chunk("{}\n"), "", "{}\n", true, "ended"},
		{"such lines, within one", chunkedHead("application/x-tail"), chunk("{"), chunk("}\n"), "{}\n", true, "ended"},
		{"any other body", chunkedHead("text/html"), chunk("<p>\n\n"), "", "<p>\n\n", false, "truncated"},
		{"a body of known length", "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 100\r\n\r\n", "data: 1\n\n", "", "data: 1\n\n", false, "truncated"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			app := startScripted(t, tt.head)
			p := startPipe(t, app, HTTP, func(c *Config) { c.EndlessTypes = []string{"application/x-tail"} })
			c := dialPipe(t, p)
			c.send(get("/events"))
			resp, err := http.ReadResponse(c.r, nil)
			if err != nil {
				t.Fatal(err)
			}
			app.send(tt.before)
			first := make([]byte, 1)
			if _, err := io.ReadFull(resp.Body, first); err != nil {
				t.Fatal(err)
			}
			report := lastCall(t, p, 300*time.Millisecond)
			if tt.after != "" {
				awaitAsked(t, p)
				app.send(tt.after)
			}
			rest, err := io.ReadAll(resp.Body)
			if got := string(first) + string(rest); got != tt.body {
				t.Errorf("the client reads %q; want %q", got, tt.body)
			}
			if whole := err == nil; whole != tt.whole || !whole && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("the client sees the end as %v; a proper one: %v", err, tt.whole)
			}
			if left := report(); len(left) != 1 || left[0].Ending != tt.ending {
				t.Errorf("report %+v; want %s", left, tt.ending)
			}
			c.wantEnd()
			<-app.got
			closePipe(t, p)
		})
	}
}

// A stream that ends by itself within the last call was not cut.
func TestStreamEndsByItself(t *testing.T) {
	app := startScripted(t, chunkedHead("text/event-stream"))
	p := startPipe(t, app, HTTP)
	c := dialPipe(t, p)
	c.send(get("/events"))
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil {
		t.Fatal(err)
	}
	app.send(chunk("data: 1\n"))
	if _, err := io.ReadFull(resp.Body, make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	report := lastCall(t, p, patience)
	awaitAsked(t, p)
	app.send(chunk("data: 2") + "0\r\n\r\n")
	if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "data: 2" {
		t.Errorf("%q, %v", b, err)
	}
	if left := report(); len(left) != 0 {
		t.Errorf("report %+v", left)
	}
	<-app.got
}

func TestStreamCloseEarly(t *testing.T) {
	app := startScripted(t, chunkedHead("text/event-stream"))
	p := startPipe(t, app, HTTP, func(c *Config) { c.EventStreams = CloseEarly })
	c := dialPipe(t, p)
	c.send(get("/events"))
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil {
		t.Fatal(err)
	}
	app.send(chunk("data: 1\n"))
	if _, err := io.ReadFull(resp.Body, make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	_ = p.Drain(ctx)
	_ = p.CloseIdle(ctx, 0)
	awaitAsked(t, p)
	app.send(chunk("data: 2\n\n"))
	if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "data: 2\n\n" {
		t.Errorf("%q, %v", b, err)
	}
	awaitActivity(t, p, 0, 0)
	<-app.got
}

// A stream that begins when those under way have been ended ends as early.
func TestLateStreamCloseEarly(t *testing.T) {
	app := startScripted(t, chunkedHead("text/event-stream"))
	p := startPipe(t, app, HTTP, func(c *Config) { c.EventStreams = CloseEarly })
	_ = p.Drain(ctx)
	_ = p.CloseIdle(ctx, 0)
	c := dialPipe(t, p)
	c.send(get("/events"))
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(resp.Body); err != nil || len(b) != 0 {
		t.Errorf("%q, %v", b, err)
	}
	awaitActivity(t, p, 0, 0)
	<-app.got
}

// The endings are spread over a part of the window, at even distances, the oldest
// first.
func TestSpread(t *testing.T) {
	for _, tt := range []struct{ set, window, want time.Duration }{
		{0, time.Second, 500 * time.Millisecond},
		{200 * time.Millisecond, time.Second, 200 * time.Millisecond},
		{time.Minute, time.Second, 750 * time.Millisecond},
	} {
		e := Endings{Spread: tt.set}
		if got := e.spread(tt.window); got != tt.want {
			t.Errorf("spread %v of a window of %v: %v; want %v", tt.set, tt.window, got, tt.want)
		}
	}
}
