package gateway

import (
	"encoding/binary"
	"net/http"
	"strings"
	"sync"

	"github.com/lastcall-dev/lastcall/internal/httpdrain"
)

const (
	grpcUnavailable = "14" // which clients may try again (gRPC's statuscodes.md)
	lastCallMessage = "the server is shutting down"
)

// isGRPC is false of gRPC-Web, whose trailers are part of its body.
func isGRPC(h http.Header) bool {
	rest, ok := strings.CutPrefix(h.Get("Content-Type"), "application/grpc")
	return ok && (rest == "" || rest[0] == '+' || rest[0] == ';')
}

// followGRPC has a gRPC response end at the last call with a status, if it comes in between
// two messages: else its client would be told INTERNAL, which nobody tries again.
func (x *exchange) followGRPC(resp *http.Response) {
	if x.request.ProtoMajor != 2 || !isGRPC(resp.Header) {
		return
	}
	x.calls = &messages{}
	httpdrain.OnLastCall(x.ResponseWriter, func() string {
		if !x.calls.end() {
			return ""
		}
		x.cut.Store(true)
		return "grpc-status " + grpcUnavailable
	})
}

// messages follows where gRPC's messages begin and end: a byte of flags, the length
// in 4 bytes, the message (gRPC's PROTOCOL-HTTP2.md, Length-Prefixed-Message).
type messages struct {
	mu    sync.Mutex
	head  [5]byte
	n     int    // of head that have come
	left  uint32 // of the message
	ended bool   // nothing more is passed on
}

// pass takes in p, which is passed on, unless the end has come: then it returns false.
func (m *messages) pass(p []byte) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		return false
	}
	for len(p) > 0 {
		if m.n < len(m.head) {
			n := copy(m.head[m.n:], p)
			m.n, p = m.n+n, p[n:]
			if m.n < len(m.head) {
				return true
			}
			m.left = binary.BigEndian.Uint32(m.head[1:])
		}
		n := min(uint64(m.left), uint64(len(p)))
		m.left, p = m.left-uint32(n), p[n:]
		if m.left == 0 {
			m.n = 0
		}
	}
	return true
}

// end ends the response here; false when that would be within a message.
func (m *messages) end() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended = m.n == 0
	return m.ended
}

func (m *messages) hasEnded() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ended
}
