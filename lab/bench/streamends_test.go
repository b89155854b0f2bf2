package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"
)

func TestJudgeEnds(t *testing.T) {
	signalled := time.Now()
	at := func(ms int) time.Time { return signalled.Add(time.Duration(ms) * time.Millisecond) }
	v := judgeEnds([]streamEnd{
		{at: at(1500)}, {at: at(1000)}, {at: at(1090), err: fmt.Errorf("read: %w", syscall.ECONNRESET)},
		{at: at(1180), err: io.ErrUnexpectedEOF}, {err: errors.New("still open")},
	}, signalled)
	for m, want := range map[*metric]float64{firstEnd: 1, lastEnd: 1.5, crowd: 2, properEnds: 2, cutStreams: 3, resets: 1} {
		if v[m] != want {
			t.Errorf("%s: %v; want %v", m.title, v[m], want)
		}
	}
}

// noDeadline is a pipe's end, which cannot set a deadline once the other end is closed.
type noDeadline struct{ net.Conn }

func (noDeadline) SetDeadline(time.Time) error { return nil }

// Whatever the pieces in which the bytes arrive, the end of a stream is judged in the same way.
func TestStreamEnds(t *testing.T) {
	const (
		events  = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
		socket  = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
		closing = "\x88\x02\x03\xe9"
	)
	chunk := func(text string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(text), text) }
	event := func(number int) string { return "data: " + tokenText(number) + "\n\n" }
	message := func(number int) string {
		text := tokenText(number)
		return "\x81" + string(byte(len(text))) + text
	}
	for _, row := range []struct{ name, path, sent, fails string }{
		{"last chunk", eventsPath, events + chunk(event(0)) + chunk(event(1)) + chunk("retry: 1000\n\n") + "0\r\n\r\n", ""},
		{"other chunks", eventsPath, events + chunk(event(0)[:20]) + chunk(event(0)[20:]+event(1)) + "0\r\n\r\n", ""},
		{"no last chunk", eventsPath, events + chunk(event(0)), "unexpected EOF"},
		{"last chunk within an event", eventsPath, events + chunk(event(0)) + chunk(event(1)[:50]) + "0\r\n\r\n", "within an event"},
		{"last chunk within an event, after a line", eventsPath, events + chunk(event(0)) + chunk("retry: 1\n") + "0\r\n\r\n", "within an event"},
		{"a token lacks", eventsPath, events + chunk(event(0)) + chunk(event(2)) + "0\r\n\r\n", "is next"},
		{"bytes after the end", eventsPath, events + chunk(event(0)) + "0\r\n\r\n0\r\n\r\n", "after the end"},
		{"close frame", socketPath, socket + message(0) + message(1) + closing, ""},
		{"no close frame", socketPath, socket + message(0), "unexpected EOF"},
		{"within a message", socketPath, socket + message(0) + message(1)[:40], "unexpected EOF"},
		{"close frame within a message", socketPath, socket + message(0) + message(1)[:40] + closing, "unexpected EOF"},
	} {
		for size := 1; size <= len(row.sent); size += 1 + size/3 {
			conn, server := net.Pipe()
			go func() {
				_, _ = server.Read(make([]byte, 1<<10))
				go func() { _, _ = io.Copy(io.Discard, server) }()
				for rest := row.sent; rest != ""; rest = rest[min(size, len(rest)):] {
					_, _ = io.WriteString(server, rest[:min(size, len(rest))])
				}
				_ = server.Close()
			}()
			s, err := openStream(noDeadline{conn}, row.path)
			if err != nil {
				t.Fatalf("%s, pieces of %d: %v", row.name, size, err)
			}
			s.watch()
			if err := s.end.err; (err == nil) != (row.fails == "") || err != nil && !strings.Contains(err.Error(), row.fails) {
				t.Errorf("%s, pieces of %d: %d tokens, %+v", row.name, size, s.number, s.end)
			}
		}
	}
}

func TestRefusedStream(t *testing.T) {
	for _, path := range []string{eventsPath, socketPath} {
		conn, server := net.Pipe()
		go func() {
			_, _ = server.Read(make([]byte, 1<<10))
			_, _ = io.WriteString(server, "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
		}()
		if _, err := openStream(conn, path); err == nil || !strings.Contains(err.Error(), "503") {
			t.Errorf("%s: %v", path, err)
		}
		_ = conn.Close()
		_ = server.Close()
	}
}

// The app sends tokens on both kinds of streams, and a stream that its client still reads is not ended.
func TestAppSendsTokens(t *testing.T) {
	server := httptest.NewServer(appRoutes())
	defer server.Close()
	for _, path := range []string{eventsPath, socketPath} {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		must.Do(t, err)
		s, err := openStream(conn, path)
		must.Do(t, err)
		if err := s.next(); err != nil || s.number != 2 {
			t.Errorf("%s: %d tokens, %v", path, s.number, err)
		}
		_ = conn.SetReadDeadline(time.Now())
		if s.watch(); !s.end.at.IsZero() || s.end.err == nil {
			t.Errorf("%s: %+v, want it to be open", path, s.end)
		}
	}
}
