package stream

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// End is how a stream ended, as its client saw it.
type End struct {
	At time.Time // of the last chunk, the close frame or, without one, the connection's end
	// Proper: an event stream ended after a whole event with the last chunk, a WebSocket between messages with a close
	// frame; then came a FIN.
	Proper bool
	Retry  bool  // an event stream sent the time after which to reconnect
	Code   int   // of the close frame
	Err    error // where Proper is false: the bytes received instead
}

// stream is a client's connection, and how far its bytes are read.
type stream struct {
	fd   int
	kind Kind
	end  End
	next int64 // the number of the next token

	at   place
	line []byte // the head, or as much of a chunk's line or a frame's header as has come
	left int    // bytes of the chunk or frame still to come
	text []byte // as much of the event or message as has come
	op   byte   // of the frame
}

type place uint8

const (
	inHead place = iota
	inChunkLine
	inChunk
	afterChunk
	inTrailer
	inFrameHeader
	inPayload
	over
)

// sampleKey is that of RFC 6455, 1.3.
const sampleKey = "dGhlIHNhbXBsZSBub25jZQ=="

const longestHead, longestText = 4 << 10, 4 << 10

// feed reads what has come.
func (s *stream) feed(p []byte, now time.Time, token func(*stream, time.Duration)) error {
	for len(p) > 0 {
		switch s.at {
		case inChunk, inPayload:
			n := min(s.left, len(p))
			if err := s.take(p[:n], now, token); err != nil {
				return err
			}
			p = p[n:]
			if s.left -= n; s.left == 0 {
				if err := s.blockEnds(now, token); err != nil {
					return err
				}
			}
		case over:
			return fmt.Errorf("%q after the end", p)
		default:
			// Heads and lines are short, and taken byte by byte.
			s.line, p = append(s.line, p[0]), p[1:]
			if len(s.line) > longestHead {
				return fmt.Errorf("%q: too long", s.line[:64])
			}
			if err := s.step(now, token); err != nil {
				return err
			}
		}
	}
	return nil
}

// step looks whether the line, head or frame header is complete.
func (s *stream) step(now time.Time, token func(*stream, time.Duration)) error {
	switch {
	case s.at == inFrameHeader:
		return s.frameHeader(now, token)
	case s.line[len(s.line)-1] != '\n':
		return nil
	case s.at == inHead:
		if bytes.HasSuffix(s.line, []byte("\r\n\r\n")) {
			return s.headEnds()
		}
		return nil
	}
	line := bytes.TrimSuffix(s.line, []byte("\r\n"))
	s.line = s.line[:0]
	switch s.at {
	case inChunkLine:
		size, err := strconv.ParseInt(string(line), 16, 32)
		if err != nil || size < 0 {
			return fmt.Errorf("chunk of size %q", line)
		}
		if s.left, s.at = int(size), inChunk; size == 0 {
			s.at = inTrailer
		}
	case afterChunk, inTrailer:
		if len(line) > 0 {
			return fmt.Errorf("%q after a chunk", line)
		}
		if s.at == afterChunk {
			s.at = inChunkLine
			return nil
		}
		s.at, s.end.At = over, now
		if len(s.text) > 0 {
			return fmt.Errorf("a last chunk within an event: %q", s.text)
		}
		s.end.Proper = true
	}
	return nil
}

func (s *stream) headEnds() error {
	head := bytes.ToLower(s.line)
	s.line = s.line[:0]
	switch {
	case s.kind == SSE && bytes.HasPrefix(head, []byte("http/1.1 200 ")) && bytes.Contains(head, []byte("\r\ntransfer-encoding: chunked\r\n")):
		s.at = inChunkLine
	case s.kind == WebSocket && bytes.HasPrefix(head, []byte("http/1.1 101 ")) && bytes.Contains(head, bytes.ToLower([]byte(acceptKey(sampleKey)))):
		s.at = inFrameHeader
	default:
		return fmt.Errorf("response %q", head)
	}
	return nil
}

func (s *stream) frameHeader(now time.Time, token func(*stream, time.Duration)) error {
	if len(s.line) < 2 || s.line[1] == 126 && len(s.line) < 4 {
		return nil
	}
	s.op, s.left = s.line[0], int(s.line[1])
	switch {
	case s.left == 126:
		s.left = int(binary.BigEndian.Uint16(s.line[2:]))
	case s.left > 126:
		return fmt.Errorf("frame header %x: masked or too long", s.line)
	}
	if s.op != 0x81 && s.op != 0x88 {
		return fmt.Errorf("frame header %x: neither a whole text message nor a close frame", s.line)
	}
	s.line, s.at = s.line[:0], inPayload
	if s.left == 0 {
		return s.blockEnds(now, token)
	}
	return nil
}

// take takes bytes of a chunk or of a frame's payload.
func (s *stream) take(p []byte, now time.Time, token func(*stream, time.Duration)) error {
	if s.kind == WebSocket {
		s.text = append(s.text, p...)
		return nil
	}
	for len(p) > 0 { // an event ends with an empty line
		n := bytes.IndexByte(p, '\n') + 1
		if n == 0 {
			n = len(p)
		}
		s.text, p = append(s.text, p[:n]...), p[n:]
		if len(s.text) > longestText {
			return fmt.Errorf("%q: too long", s.text[:64])
		}
		if bytes.HasSuffix(s.text, []byte("\n\n")) {
			if err := s.event(now, token); err != nil {
				return err
			}
			s.text = s.text[:0]
		}
	}
	return nil
}

func (s *stream) event(now time.Time, token func(*stream, time.Duration)) error {
	for line := range bytes.SplitSeq(bytes.TrimSuffix(s.text, []byte("\n\n")), []byte("\n")) {
		name, value, _ := bytes.Cut(line, []byte(": "))
		switch string(name) {
		case "retry":
			s.end.Retry = true
		case "data":
			if err := s.token(value, now, token); err != nil {
				return err
			}
		default:
			return fmt.Errorf("event line %q", line)
		}
	}
	return nil
}

func (s *stream) token(text []byte, now time.Time, token func(*stream, time.Duration)) error {
	number, due, err := readToken(text)
	if err != nil {
		return err
	}
	if number != s.next {
		return fmt.Errorf("token %d where %d is next", number, s.next)
	}
	s.next++
	token(s, time.Duration(now.UnixNano()-due))
	return nil
}

// blockEnds is at the end of a chunk or frame.
func (s *stream) blockEnds(now time.Time, token func(*stream, time.Duration)) error {
	if s.kind == SSE {
		s.at = afterChunk
		return nil
	}
	s.at = inFrameHeader
	defer func() { s.text = s.text[:0] }()
	if s.op == 0x81 {
		return s.token(s.text, now, token)
	}
	s.at, s.end.At, s.end.Proper = over, now, true
	if len(s.text) >= 2 {
		s.end.Code = int(binary.BigEndian.Uint16(s.text))
	}
	// Its answer: the same code, masked with zeros. That it fails is seen when the connection ends.
	_, _ = unix.Write(s.fd, append([]byte{0x88, 0x80 | byte(len(s.text)), 0, 0, 0, 0}, s.text...))
	return nil
}

// close notes the connection's end; err is nil for a FIN.
func (s *stream) close(now time.Time, err error) {
	_ = unix.Close(s.fd)
	if s.end.At.IsZero() {
		s.end.At = now
	}
	switch {
	case err != nil:
		s.end.Proper, s.end.Err = false, err
	case !s.end.Proper && s.end.Err == nil:
		s.end.Err = io.ErrUnexpectedEOF
	}
}

// IsReset reports whether the connection was reset, before or after a proper end.
func (e End) IsReset() bool { return errors.Is(e.Err, unix.ECONNRESET) }
