package gateway

import (
	"net/http"
	"sync"

	"github.com/lastcall-dev/lastcall/httpdrain"
	"github.com/lastcall-dev/lastcall/internal/wire/grpc"
)

func isGRPC(h http.Header) bool { return grpc.IsType([]byte(h.Get("Content-Type"))) }

// followGRPC makes a gRPC response end with UNAVAILABLE at the last call if that comes between two messages. A client
// reports a truncated response as INTERNAL, which it does not retry.
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

// messages follows a response's messages, so that the last call can end the response between two of them.
type messages struct {
	mu    sync.Mutex // guards what follows
	at    grpc.Messages
	ended bool // by the last call
}

// pass follows p and returns whether it may be passed on.
func (m *messages) pass(p []byte) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.ended {
		m.at.Follow(p)
	}
	return !m.ended
}

// end ends the response, unless it is within a message, and returns whether it did.
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
