package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"golang.org/x/net/websocket"
)

// tokenEvery is the time between two tokens of a stream.
const tokenEvery = time.Second

// sampleKey is the key of RFC 6455, 1.3, which all clients send.
const sampleKey = "dGhlIHNhbXBsZSBub25jZQ=="

// First bytes of unfragmented WebSocket frames (RFC 6455, 5.2).
const (
	textFrame  = 0x81
	closeFrame = 0x88
	masked     = 0x80 // of the second byte
)

// sendEvents is the app's event stream. It ends with its client's connection.
func sendEvents(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // nginx then forwards each event at once
	out := http.NewResponseController(w)
	sendTokens(r.Context().Done(), func(token string) error {
		if _, err := fmt.Fprintf(w, "data: %s\n\n", token); err != nil {
			return err
		}
		return out.Flush()
	})
}

// sendMessages is the app's WebSocket. It answers the client's close frame.
func sendMessages(conn *websocket.Conn) {
	defer func() { _ = conn.Close() }() // with a close frame
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_, _ = io.Copy(io.Discard, conn)
	}()
	sendTokens(closed, func(token string) error { return websocket.Message.Send(conn, token) })
}

// sendTokens calls send with a numbered token at once and then each tokenEvery, until send fails or done is closed.
// The second token comes after a random part of tokenEvery, so that streams which begin together do not stay in step.
func sendTokens(done <-chan struct{}, send func(token string) error) {
	wait := time.NewTimer(rand.N(tokenEvery))
	defer wait.Stop()
	for number := 0; ; number++ {
		if send(tokenText(number)) != nil {
			return
		}
		select {
		case <-wait.C:
			wait.Reset(tokenEvery)
		case <-done:
			return
		}
	}
}

// tokenText has the form of a chat completion's chunk, and less than the 126 bytes that a short frame can have.
func tokenText(number int) string {
	return fmt.Sprintf(`{"object":"token","number":%d,"choices":[{"index":0,"delta":{"content":" word"}}]}`, number)
}

// stream is a client's connection with an event stream or a WebSocket.
type stream struct {
	conn   net.Conn
	in     *bufio.Reader
	events *bufio.Reader // the response's body, without its chunks; nil of a WebSocket
	number int           // of the next token
	end    streamEnd
}

// streamEnd is how a stream ended, as its client saw it.
type streamEnd struct {
	at time.Time // of the last chunk, of the close frame or, without one, of the connection's end; zero while it is open
	// err is nil of a proper end: an event stream ended after a whole event with the last chunk, a WebSocket between
	// messages with a close frame; then the client received a FIN.
	err error
}

// openStream requests a stream and reads its first token.
func openStream(conn net.Conn, path string) (*stream, error) {
	upgrade, status := "", http.StatusOK
	if path == socketPath {
		status = http.StatusSwitchingProtocols
		upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" +
			"Sec-WebSocket-Key: " + sampleKey + "\r\n"
	}
	if err := conn.SetDeadline(time.Now().Add(readyTimeout)); err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: app\r\n%s\r\n", path, upgrade); err != nil {
		return nil, fmt.Errorf("request a stream: %w", err)
	}
	s := &stream{conn: conn, in: bufio.NewReaderSize(conn, 1<<10)}
	response, err := http.ReadResponse(s.in, nil) //nolint:bodyclose // the connection is closed
	if err != nil {
		return nil, fmt.Errorf("request a stream: %w", err)
	}
	if response.StatusCode != status {
		return nil, fmt.Errorf("request a stream: %s", response.Status)
	}
	if path == eventsPath {
		s.events = bufio.NewReaderSize(response.Body, 1<<10)
	}
	if err := s.next(); err != nil {
		return nil, fmt.Errorf("read a stream's first token: %w", err)
	}
	return s, conn.SetDeadline(time.Time{})
}

// watch reads to the stream's end, and closes the connection.
func (s *stream) watch() {
	defer s.conn.Close()
	var err error
	for err == nil {
		err = s.next()
	}
	s.end.at = time.Now()
	if errors.Is(err, io.EOF) {
		_, err = s.in.ReadByte()
		if err == nil {
			err = errors.New("bytes after the end")
		}
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		s.end = streamEnd{err: errors.New("still open")}
	case !errors.Is(err, io.EOF):
		s.end.err = err
	}
}

// next reads a token; io.EOF is a proper end.
func (s *stream) next() error {
	if s.events == nil {
		return s.nextMessage()
	}
	return s.nextEvent()
}

// nextEvent reads an event. One without data, such as the time after which to reconnect, is no token.
func (s *stream) nextEvent() error {
	for began := false; ; began = true {
		line, err := s.events.ReadString('\n')
		switch name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": "); {
		case err == io.EOF && (began || line != ""):
			return errors.New("the last chunk is within an event")
		case err != nil:
			return err
		case line == "\n":
			return nil
		case name == "data":
			if err := s.token(value); err != nil {
				return err
			}
		case name != "retry":
			return fmt.Errorf("event line %q", line)
		}
	}
}

// nextMessage reads a WebSocket's message. It answers a close frame.
func (s *stream) nextMessage() error {
	var head [2]byte
	if _, err := io.ReadFull(s.in, head[:]); err == io.EOF {
		return io.ErrUnexpectedEOF // no close frame
	} else if err != nil {
		return err
	}
	if head[0] != textFrame && head[0] != closeFrame || head[1] >= 126 {
		return fmt.Errorf("frame header %x: neither a short, whole, unmasked text message nor a close frame", head)
	}
	payload := make([]byte, head[1])
	if _, err := io.ReadFull(s.in, payload); err != nil {
		return io.ErrUnexpectedEOF
	}
	if head[0] == textFrame {
		return s.token(string(payload))
	}
	// The answer has the same code, masked with zeros. If it cannot be sent, reading the FIN fails as well.
	_, _ = s.conn.Write(append([]byte{closeFrame, masked | head[1], 0, 0, 0, 0}, payload...))
	return io.EOF
}

func (s *stream) token(text string) error {
	if want := tokenText(s.number); text != want {
		return fmt.Errorf("token %q where %q is next", text, want)
	}
	s.number++
	return nil
}
