// Package eventstream follows the body of a text/event-stream response (HTML, 9.2) and decides how a proxy may end it
// before the application does.
//
// The client of the HTML standard, EventSource, sends a GET and reconnects whenever the stream ends. Such a stream may
// end properly between two events. Every other event stream is a response with an end of its own: the tokens of an
// LLM, the progress of a job, an MCP call. A proper end before that one would make a truncated response look complete.
// Such a stream is truncated, if possible after an event that the client library raises as an error. A stream whose
// terminal event has been sent is complete.
package eventstream

import (
	"bytes"
	"net/http"

	"github.com/lastcall-dev/lastcall/internal/wire/http1"
)

// Media is the kind of a response's body by its Content-Type.
type Media uint8

// Media whose bodies can be followed.
const (
	Other     Media = iota
	Events          // text/event-stream
	JSONLines       // application/x-ndjson, as Ollama's streams
)

// MediaOf returns the media of a response's Content-Type. JSON lines that answer a GET are an export, which no error
// event can end.
func MediaOf(contentType []byte, isGET bool) Media {
	switch media := http1.MediaType(contentType); {
	case http1.EqualFold(media, "text/event-stream"):
		return Events
	case http1.EqualFold(media, "application/x-ndjson") && !isGET:
		return JSONLines
	}
	return Other
}

// IsSubscription reports whether a response may be that of a client that reconnects by itself, as EventSource does.
// Every other one is generated for its request.
func IsSubscription(isGET bool, status int) bool { return isGET && status == http.StatusOK }

// Follow follows a response's body from its first byte; nil if it cannot be followed. Each of JSONLines counts as an
// event with these data.
func Follow(m Media, isSubscription bool) *Stream {
	if m == Other {
		return nil
	}
	return &Stream{isSubscription: isSubscription, jsonLines: m == JSONLines}
}

// Stream is the state of an event stream after the last byte that was passed to Follow.
type Stream struct {
	isSubscription bool // response with status 200 to a GET, as for EventSource
	jsonLines      bool // each line is an event

	inLine  bool  // within a line
	afterCR bool  // an LF would belong to the previous line
	pending bool  // a field has come since the last blank line: the event is incomplete
	field   field // of this line
	name    short // of the field, as much as has come
	value   bool  // a byte of the value has come

	event   short   // the value of the event field
	data    short   // the beginning of the event's data
	lines   int     // of data in this event
	members members // of the event's data, if it is a JSON object
	retry   int     // last reconnection time of the application, milliseconds; 0: none
	spread  int     // of the reconnection time at the end, milliseconds; 0: the default

	dialect  dialect
	sequence int  // sequence_number of the last event
	complete bool // the last event was the terminal one
}

// field is the field of a line (HTML, 9.2.6).
type field uint8

const (
	unnamed field = iota // the colon has not come yet
	comment
	fieldEvent
	fieldData
	fieldRetry
	fieldOther
)

// short is the beginning of a string, with room for more than the longest name that is looked for.
type short struct {
	b [24]byte
	n int
}

func (s *short) add(p []byte)  { s.n += copy(s.b[s.n:], p) }
func (s *short) reset()        { s.n = 0 }
func (s *short) bytes() []byte { return s.b[:s.n] }

func (s *short) addByte(c byte) {
	if s.n < len(s.b) {
		s.b[s.n] = c
		s.n++
	}
}

// BetweenEvents reports whether the body could end here without truncating an event.
func (s *Stream) BetweenEvents() bool { return !s.inLine && !s.pending }

// Follow takes the next bytes of the body.
func (s *Stream) Follow(p []byte) {
	for len(p) > 0 {
		if s.afterCR {
			if s.afterCR = false; p[0] == '\n' {
				p = p[1:]
				continue
			}
		}
		end := bytes.IndexByte(p, '\n')
		line := p
		if end >= 0 {
			line = p[:end]
		}
		if cr := bytes.IndexByte(line, '\r'); cr >= 0 {
			end, line = cr, line[:cr]
		}
		if len(line) > 0 {
			s.part(line)
		}
		if end < 0 {
			return
		}
		s.afterCR = p[end] == '\r'
		s.lineEnds()
		p = p[end+1:]
	}
}

// part takes a part of a line, without its end.
func (s *Stream) part(p []byte) {
	if !s.inLine {
		s.inLine, s.field, s.value = true, unnamed, false
		s.name.reset()
		if s.jsonLines {
			s.field, s.value = fieldData, true
			if s.lines > 0 && s.dialect == unknown {
				s.field = fieldOther
			}
		}
	}
	if s.field == unnamed {
		colon := bytes.IndexByte(p, ':')
		if colon < 0 {
			s.name.add(p)
			return
		}
		s.name.add(p[:colon])
		s.named()
		p = p[colon+1:]
	}
	if len(p) > 0 && !s.value {
		if s.value = true; p[0] == ' ' {
			p = p[1:]
		}
	}
	switch s.field {
	case fieldEvent:
		s.event.add(p)
	case fieldData:
		s.data.add(p)
		s.members.follow(p)
	case fieldRetry:
		s.retry = appendDigits(s.retry, p)
	}
}

func (s *Stream) named() {
	switch string(s.name.bytes()) {
	case "":
		s.field = comment
	case "event":
		s.field = fieldEvent
		s.event.reset()
	case "data":
		s.field = fieldData
		if s.lines++; s.lines > 1 {
			s.data.addByte('\n')
		}
	case "retry":
		s.field = fieldRetry
		s.retry = 0
	default:
		s.field = fieldOther
	}
	s.pending = s.pending || s.field != comment
}

func (s *Stream) lineEnds() {
	switch {
	case s.jsonLines && s.inLine:
		s.judge()
		s.data.reset()
		s.members, s.lines = members{}, 1
	case s.inLine && s.field == unnamed: // a field without a value
		s.named()
	case !s.inLine && s.pending: // the blank line after an event
		if s.lines > 0 { // a block without data is not an event: retry or id alone
			s.judge()
		}
		s.pending, s.lines = false, 0
		s.event.reset()
		s.data.reset()
		s.members = members{}
	}
	s.inLine = false
}

// maxDigits bounds the numbers that are read, so that none overflows.
const maxDigits = 1 << 40

// appendDigits appends digits to a decimal number. It skips other bytes.
func appendDigits(n int, p []byte) int {
	for _, c := range p {
		if '0' <= c && c <= '9' && n < maxDigits {
			n = n*10 + int(c-'0')
		}
	}
	return n
}
