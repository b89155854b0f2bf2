package conformance

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/h2c" //lint:ignore SA1019 see h2cUpgrade
)

// session is the state of a service's apps about the one client that uses it. They
// play along, so that a client's script needs nothing but its requests:
//
//	GET  /next    "more", or "enough" once the old pod is gone and the young one has answered for a while
//	POST /echo    the body
//	GET  /slow    "slow", some seconds after the SIGTERM
//	POST /slow    the body, then
//	GET  /drip    a line "drip" every 50 ms from now until then, at last "end"
//	     /ws      a WebSocket: for each message "more" or "enough"
//
// Each answer says in its field Pod whose it is.
type session struct {
	needs     int32         // how many slow requests are in flight before the SIGTERM
	requested atomic.Int32  // how many are
	answers   atomic.Int32  // answers of /next and /ws by the old pod
	ready     chan struct{} // closed when the SIGTERM can come
	once      sync.Once
	release   chan struct{} // closed when slow requests end
	young     atomic.Int32  // answers of the young pod since the old one is gone
	raced     int           // of the old pod's report; once play has returned
	h1, h2    atomic.Int32  // requests by version
}

const (
	warm   = 12 // answers before the SIGTERM
	longer = 8  // answers after the old pod's end
)

func newSession(needs int32) *session {
	return &session{needs: needs, ready: make(chan struct{}), release: make(chan struct{})}
}

func (s *session) isReady() {
	if s.answers.Load() >= warm && s.requested.Load() >= s.needs {
		s.once.Do(func() { close(s.ready) })
	}
}

// next is whether the client continues.
func (s *session) next(of *service, name string) string {
	if name == "old" {
		s.answers.Add(1)
		s.isReady()
		return "more"
	}
	select {
	case <-of.gone:
		if s.young.Add(1) > longer {
			return "enough"
		}
	default:
	}
	return "more"
}

// work is the time of a slow request.
func (s *session) work(r *http.Request) {
	s.requested.Add(1)
	s.isReady()
	select {
	case <-s.release:
	case <-r.Context().Done():
	}
}

// app serves the session over HTTP/1.1, and HTTP/2 with prior knowledge and by an
// upgrade.
func (s *session) app(t *testing.T, of *service, name string) net.Addr {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /next", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, s.next(of, name)) })
	mux.HandleFunc("POST /echo", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("a body has not come whole: %v", err)
		}
		_, _ = w.Write(body)
	})
	mux.HandleFunc("GET /slow", func(w http.ResponseWriter, r *http.Request) {
		s.work(r)
		fmt.Fprint(w, "slow")
	})
	mux.HandleFunc("POST /slow", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("a body has not come whole: %v", err)
		}
		s.work(r)
		_, _ = w.Write(body)
	})
	mux.HandleFunc("GET /drip", func(w http.ResponseWriter, r *http.Request) {
		s.requested.Add(1)
		s.isReady()
		drip := time.NewTicker(50 * time.Millisecond)
		defer drip.Stop()
		for {
			fmt.Fprintln(w, "drip")
			_ = http.NewResponseController(w).Flush()
			select {
			case <-drip.C:
			case <-r.Context().Done():
				return
			case <-s.release:
				fmt.Fprintln(w, "end")
				return
			}
		}
	})
	mux.HandleFunc("/ws", func(w http.ResponseWriter, r *http.Request) {
		ws, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer ws.CloseNow()
		for {
			kind, _, err := ws.Read(r.Context())
			if err != nil {
				return
			}
			if err := ws.Write(r.Context(), kind, []byte(s.next(of, name))); err != nil {
				return
			}
		}
	})
	named := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Pod", name)
		if r.ProtoMajor == 2 {
			s.h2.Add(1)
		} else {
			s.h1.Add(1)
		}
		mux.ServeHTTP(w, r)
	})
	return serveGo(t, h2cUpgrade(named))
}

// h2cUpgrade adds the upgrade of HTTP/1.1 to HTTP/2, which net/http has not.
func h2cUpgrade(h http.Handler) http.Handler {
	upgrading := h2c.NewHandler(h, new(http2.Server)) //lint:ignore SA1019 nothing else knows the upgrade
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.EqualFold(r.Header.Get("Upgrade"), "h2c") {
			upgrading.ServeHTTP(w, r)
			return
		}
		h.ServeHTTP(w, r)
	})
}
