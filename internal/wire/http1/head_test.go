package http1

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/wire/http1/http1test"
	"github.com/lastcall-dev/lastcall/internal/wire/stormtest"
)

func TestParseRequest(t *testing.T) {
	for _, tt := range []struct {
		name, head string
		status     int // 0: accepted
		kind       BodyKind
		left       uint64
	}{
		{name: "plain", head: "GET / HTTP/1.1\r\nHost: a\r\n\r\n"},
		{name: "no fields", head: "GET / HTTP/1.0\r\n\r\n"},
		{name: "length", head: "POST /a HTTP/1.1\r\nContent-Length: 12\r\n\r\n", kind: LengthBody, left: 12},
		{name: "length zero", head: "POST /a HTTP/1.1\r\ncontent-length:0\r\n\r\n"},
		{name: "length with tabs around", head: "POST /a HTTP/1.1\r\ncontent-length:\t 7 \t\r\n\r\n",
			kind: LengthBody, left: 7},
		{name: "chunked", head: "POST /a HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n", kind: ChunkedBody},
		{name: "empty value", head: "GET / HTTP/1.1\r\nX:\r\n\r\n"},
		{name: "high bytes in a value", head: "GET / HTTP/1.1\r\nX: \xff\xfe\r\n\r\n"},

		// What it refuses otherwise is in TestCases.
		{name: "bare LF after the request line", head: "GET / HTTP/1.1\nHost: a\r\n\r\n", status: 400},
		{name: "no target", head: "GET HTTP/1.1\r\n\r\n", status: 400},
		{name: "other version", head: "GET / HTTP/1.2\r\n\r\n", status: 505},
		{name: "method is no token", head: "G(T / HTTP/1.1\r\n\r\n", status: 400},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, err := ParseRequest([]byte(tt.head))
			if tt.status != 0 {
				if err == nil {
					t.Fatalf("accepted; want %d", tt.status)
				}
				if got := StatusOf(err); got != tt.status {
					t.Fatalf("status %d (%v); want %d", got, err, tt.status)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if h.Body.Kind != tt.kind || h.Body.Left != tt.left {
				t.Errorf("body kind %d with %d left; want %d, %d", h.Body.Kind, h.Body.Left, tt.kind, tt.left)
			}
		})
	}
}

// What a client sends is read as it is meant, or refused.
func TestCases(t *testing.T) {
	for _, c := range http1test.Cases() {
		var seen []string
		status := 0
		for rest := []byte(c.Bytes); len(rest) > 0; {
			m, err := nextRequest(rest)
			if err != nil {
				status = StatusOf(err)
				break
			}
			seen = append(seen, fmt.Sprintf("%s %d", m.first, len(m.body)))
			if rest = rest[m.end:]; m.open {
				break
			}
		}
		if !slices.Equal(seen, c.Seen) || status != c.Status {
			t.Errorf("%s: read %q, then %d; want %q, then %d", c.Name, seen, status, c.Seen, c.Status)
		}
	}
}

func TestParseResponse(t *testing.T) {
	for _, tt := range []struct {
		name, head string
		isHead     bool
		kind       BodyKind
		left       uint64
		bad        bool
	}{
		{name: "length", head: "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", kind: LengthBody, left: 3},
		{name: "no reason", head: "HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n"},
		{name: "until close", head: "HTTP/1.1 200 OK\r\n\r\n", kind: CloseBody},
		{name: "to HEAD", head: "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", isHead: true},
		{name: "204", head: "HTTP/1.1 204 No Content\r\n\r\n"},
		{name: "304 with a length", head: "HTTP/1.1 304 Not Modified\r\nContent-Length: 3\r\n\r\n"},
		{name: "100", head: "HTTP/1.1 100 Continue\r\n\r\n"},
		{name: "gzip, chunked", head: "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", kind: ChunkedBody},
		{name: "gzip alone", head: "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", kind: CloseBody},
		{name: "both lengths", head: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n",
			bad: true},
		{name: "status of two digits", head: "HTTP/1.1 20 OK\r\n\r\n", bad: true},
		{name: "status 099", head: "HTTP/1.1 099 OK\r\n\r\n", bad: true},
		{name: "no HTTP", head: "SSH-2.0-OpenSSH_9.7 or the like\r\n\r\n", bad: true},
		{name: "bare LF", head: "HTTP/1.1 200 OK\nContent-Length: 3\r\n\r\n", bad: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, err := ParseResponse([]byte(tt.head))
			if (err != nil) != tt.bad {
				t.Fatalf("error %v; want one: %v", err, tt.bad)
			}
			if err != nil {
				return
			}
			if b := h.ResponseBody(tt.isHead); b.Kind != tt.kind || b.Left != tt.left {
				t.Errorf("body kind %d with %d left; want %d, %d", b.Kind, b.Left, tt.kind, tt.left)
			}
		})
	}
}

func TestAppendClosing(t *testing.T) {
	for _, tt := range []struct{ name, head, want string }{
		{"no option", "HTTP/1.1 200 OK\r\nA: b\r\n\r\n", "HTTP/1.1 200 OK\r\nA: b\r\nconnection: close\r\n\r\n"},
		{"keep-alive", "HTTP/1.1 200 OK\r\nConnection: Keep-Alive\r\nKeep-Alive: timeout=5\r\nA: b\r\n\r\n",
			"HTTP/1.1 200 OK\r\nA: b\r\nconnection: close\r\n\r\n"},
		{"other options stay", "HTTP/1.1 200 OK\r\nConnection: x-hop, keep-alive\r\nX-Hop: 1\r\n\r\n",
			"HTTP/1.1 200 OK\r\nX-Hop: 1\r\nconnection: x-hop, close\r\n\r\n"},
		{"no fields", "HTTP/1.1 204 No Content\r\n\r\n", "HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n"},
		{"the status line is no field", "HTTP/1.1 200 keep-alive: 1\r\n\r\n",
			"HTTP/1.1 200 keep-alive: 1\r\nconnection: close\r\n\r\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := string(AppendClosing(nil, []byte(tt.head))); got != tt.want {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

func TestChunkedBody(t *testing.T) {
	for _, tt := range []struct {
		name, body string
		err        error // nil: whole
	}{
		{name: "one chunk", body: "3\r\nabc\r\n0\r\n\r\n"},
		{name: "extension", body: "3;a=\"b;c\"\r\nabc\r\n0;x\r\n\r\n"},
		{name: "trailers", body: "0\r\nA: b\r\nC: d\r\n\r\n"},
		{name: "capital and leading zeros", body: "00A\r\n0123456789\r\n0\r\n\r\n"},
		{name: "no size", body: "\r\nabc", err: ErrChunkSize},
		{name: "sign", body: "+3\r\nabc", err: ErrChunkSize},
		{name: "0x", body: "0x3\r\nabc", err: ErrChunkSize},
		{name: "size too long", body: "00000000000000001\r\n", err: ErrChunkSize},
		{name: "size beyond 63 bits", body: "8000000000000000\r\n", err: ErrChunkSize},
		{name: "bare LF after size", body: "3\nabc\r\n", err: ErrChunkSize},
		{name: "bare CR in extension", body: "3;a\rb\r\nabc", err: ErrChunkExt},
		{name: "bare LF in extension", body: "3;a\nabc\r\n0\r\n\r\n", err: ErrChunkExt},
		{name: "data too long", body: "3\r\nabcd\r\n", err: ErrChunkEnd},
		{name: "bare LF after data", body: "3\r\nabc\n", err: ErrChunkEnd},
		{name: "bare LF in trailers", body: "0\r\nA: b\n\r\n", err: ErrTrailer},
		{name: "endless extension", body: "3;" + strings.Repeat("x", maxExcess+2) + "\r\n", err: ErrChunkLine},
		{name: "many extensions", body: strings.Repeat("1;"+strings.Repeat("x", 1000)+"\r\na\r\n", 20),
			err: ErrChunkLine},
		{name: "long extensions of long chunks",
			body: strings.Repeat("400;"+strings.Repeat("x", 1000)+"\r\n"+strings.Repeat("a", 1024)+"\r\n", 50) +
				"0\r\n\r\n"},
		{name: "white space before the extension", body: "3 \t;x\r\nabc\r\n0 \r\n\r\n"},
		{name: "white space within the size", body: "3 3\r\nabc", err: ErrChunkSize},
		{name: "endless white space", body: "3" + strings.Repeat(" ", maxExcess+2), err: ErrChunkLine},
		{name: "control character in extension", body: "3;a\x00\r\nabc\r\n", err: ErrChunkExt},
		{name: "folded trailer", body: "0\r\nA: b\r\n c\r\n\r\n", err: ErrTrailer},
		{name: "trailer without a colon", body: "0\r\nAbc\r\n\r\n", err: ErrTrailer},
		{name: "space before a trailer's colon", body: "0\r\nA : b\r\n\r\n", err: ErrTrailer},
		{name: "endless trailers", body: "0\r\n" + strings.Repeat("A: b\r\n", maxTrailers/4+1),
			err: ErrTrailerTooLarge},
		{name: "endless trailer name", body: "0\r\n" + strings.Repeat("A", maxTrailers+1), err: ErrTrailerTooLarge},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, step := range []int{1, 2, 3, 7, 1 << 20} {
				b := Body{Kind: ChunkedBody}
				n, done, err := feed(&b, []byte(tt.body+"NEXT"), step)
				switch {
				case tt.err != nil:
					if !errors.Is(err, tt.err) {
						t.Fatalf("in steps of %d: error %v; want %v", step, err, tt.err)
					}
				case err != nil || !done || n != len(tt.body):
					t.Fatalf("in steps of %d: %d of %d bytes, done %v, error %v", step, n, len(tt.body), done, err)
				}
			}
		})
	}
}

// The trailers of a response have the limit of its client.
func TestTrailersOfAResponse(t *testing.T) {
	h, err := ParseResponse([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"))
	must.Do(t, err)
	body, trailers := h.ResponseBody(false), "0\r\n"+strings.Repeat("A: b\r\n", maxTrailers)+"\r\n"
	if n, done, err := feed(&body, []byte(trailers), 1000); n != len(trailers) || !done || err != nil {
		t.Errorf("%d of %d bytes, done %v, error %v", n, len(trailers), done, err)
	}
}

// feed passes p in pieces of step bytes and returns how many of its bytes belong to the body.
func feed(b *Body, p []byte, step int) (n int, done bool, err error) {
	for n < len(p) && !done {
		m, d, err := b.Advance(p[n:min(n+step, len(p))], nil)
		n += m
		if err != nil {
			return n, false, err
		}
		done = d
	}
	return n, done, nil
}

// FuzzChunked splits the bytes of a chunked body: its end is at the same place for any split.
func FuzzChunked(f *testing.F) {
	f.Add([]byte("3\r\nabc\r\n0\r\n\r\n"), uint8(1))
	f.Add([]byte("3;x=y\r\nabc\r\n0\r\nA: b\r\n\r\nrest"), uint8(3))
	f.Fuzz(func(t *testing.T, p []byte, step uint8) {
		for i, in := range stormtest.Mutations(t, p, words) {
			chunkedInPieces(t, in, step+uint8(i))
		}
	})
}

func chunkedInPieces(t *testing.T, p []byte, step uint8) {
	whole := Body{Kind: ChunkedBody}
	n, done, err := whole.Advance(p, nil)
	pieces := Body{Kind: ChunkedBody}
	m, done2, err2 := feed(&pieces, p, int(step)+1)
	if done != done2 || (err == nil) != (err2 == nil) || err == nil && n != m {
		t.Fatalf("whole: %d %v %v; in pieces: %d %v %v", n, done, err, m, done2, err2)
	}
}

func TestAppendResponse(t *testing.T) {
	now := time.Date(2026, 11, 22, 5, 0, 0, 0, time.UTC)
	const head = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 4\r\ncontent-type: text/plain\r\n" +
		"date: Sun, 22 Nov 2026 05:00:00 GMT\r\n" +
		"server: x\r\nconnection: close\r\n\r\n"
	if got := string(AppendResponse([]byte("before "), 503, "server: x\r\n", "gone", false,
		now)); got != "before "+head+"gone" {
		t.Errorf("%q", got)
	}
	if got := string(AppendResponse(nil, 503, "server: x\r\n", "gone", true, now)); got != head {
		t.Errorf("%q", got)
	}
	h, err := ParseResponse([]byte(head))
	if body := h.ResponseBody(false); err != nil || !h.Close || body.Kind != LengthBody || body.Left != 4 {
		t.Errorf("%+v, %v", h, err)
	}
}

func TestParseStatus(t *testing.T) {
	for value, want := range map[string]int{"200": 200, "099": 99, "20": 0, "2000": 0, "2x0": 0, "": 0, "+20": 0} {
		if got := ParseStatus([]byte(value)); got != want {
			t.Errorf("%q: %d, want %d", value, got, want)
		}
	}
}
