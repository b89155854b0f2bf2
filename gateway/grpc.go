package gateway

import (
	"net/http"
	"sync"

	"github.com/lastcall-dev/lastcall/httpdrain"
	"github.com/lastcall-dev/lastcall/internal/wire/grpc"
)

func isGRPC(h http.Header) bool { return grpc.IsType([]byte(h.Get("Content-Type"))) }

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
		return "grpc-status " + grpc.Unavailable
	})
}

// messages are those of a response. The last call may end it in between two.
type messages struct {
	mu    sync.Mutex // guards what follows
	at    grpc.Messages
	ended bool // nothing more is passed on
}

// pass takes in p, which is passed on, unless the end has come: then it returns false.
func (m *messages) pass(p []byte) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.ended {
		m.at.Follow(p)
	}
	return !m.ended
}

// end ends the response here; false when that would be within a message.
func (m *messages) end() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended = !m.at.Within()
	return m.ended
}

func (m *messages) hasEnded() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ended
}
