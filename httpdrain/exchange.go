package httpdrain

import (
	"bufio"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/wire/eventstream"
)

// exchange is a request and its answer, which is the handler's until the last call takes it.
type exchange struct {
	w     http.ResponseWriter
	c     *conn
	r     *http.Request
	body  *requestBody // nil when the request has none, and with HTTP/2
	began time.Time
	own   http.Header // the handler's; apart, because the last call may write at the same time

	hijacked atomic.Bool
	begun    atomic.Bool // the answer belongs to the handler for good
	broken   atomic.Bool // the last call has ended the answer, which had begun
	mu       sync.Mutex  // guards begun's change, and what follows
	taken    bool        // the last call has answered
	lastWord func() string
	ending   eventstream.Ending // of an answer that is broken

	events  *eventstream.Stream // nil when the answer is no event stream, or cannot be followed; set before begun
	writing sync.Mutex          // guards what events has followed; held while an event stream is written
}

// OnLastCall is for a handler of a Plane's whose answer to w has begun (or whose connection is
// hijacked) and whose protocol has a last word of its own: say is called once at the last call, if it
// comes while the handler runs. It must not block, has the conversation end soon, and returns the
// ending's name for reports. Without it, or when say returns "", an answer is broken off and a
// hijacked connection gets a FIN.
func OnLastCall(w http.ResponseWriter, say func() string) {
	for {
		if x, ok := w.(*exchange); ok {
			x.mu.Lock()
			x.lastWord = say
			x.mu.Unlock()
			return
		}
		inner, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return
		}
		w = inner.Unwrap()
	}
}

// sayLastWord returns its name, "" when there is none.
func (x *exchange) sayLastWord() string {
	x.mu.Lock()
	say := x.lastWord
	x.mu.Unlock()
	if say == nil {
		return ""
	}
	return say()
}

func (p *Plane) serve(w http.ResponseWriter, r *http.Request) {
	c, ok := r.Context().Value(connKey{}).(*conn)
	if !ok {
		p.handler.ServeHTTP(w, r)
		return
	}
	if c.h2 != nil {
		r.TLS = c.h2.tls // lost on the way through the carrier
	}
	x := &exchange{w: w, c: c, r: r, began: time.Now(), own: http.Header{}}
	x.followBody()
	ignored := p.ignored(r)
	p.mu.Lock()
	p.working++
	c.asked = true
	if c.ignored = ignored; !ignored {
		p.arrivals++
		c.requests[x] = struct{}{}
	}
	p.tell()
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.working--
		delete(c.requests, x)
		p.tell()
	}()
	func() {
		defer x.endBody()
		p.handler.ServeHTTP(x, x.r)
	}()
	x.finish()
	x.leaveBody()
}

// finish is for a handler that has returned: its trailers, or an answer that it left to the server.
func (x *exchange) finish() {
	if !x.begin(http.StatusOK) {
		return
	}
	to := x.w.Header()
	declared := to.Values("Trailer")
	for name, values := range x.own {
		isTrailer := strings.HasPrefix(name, http.TrailerPrefix)
		for _, list := range declared {
			for d := range strings.SplitSeq(list, ",") {
				isTrailer = isTrailer || http.CanonicalHeaderKey(strings.TrimSpace(d)) == name
			}
		}
		if isTrailer {
			to[name] = values
		}
	}
}

func (x *exchange) Header() http.Header { return x.own }

// begin makes the answer the handler's, and says goodbye in it; false when the last call was first.
func (x *exchange) begin(status int) bool {
	if x.begun.Load() {
		return true
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.taken {
		return false
	}
	if x.begun.Load() {
		return true
	}
	copyHeader(x.w.Header(), x.own)
	x.sayGoodbye()
	if x.isEarly() {
		x.w.Header().Set("Connection", "close")
	}
	x.follow(status)
	x.begun.Store(true)
	return true
}

func copyHeader(to, from http.Header) {
	for name, values := range from {
		to[name] = values
	}
}

// sayGoodbye while draining: HTTP/1.1 in the head, HTTP/2 by a frame of its own, or, when the
// connection is to end with this request, by the server's (it makes one of the header).
func (x *exchange) sayGoodbye() {
	p := x.c.p
	switch {
	case !p.draining.Load():
	case x.r.ProtoMajor == 2 && !p.closing.Load():
		p.lingering.Go(x.c.h2.sayGoodbye)
	default:
		x.w.Header().Set("Connection", "close")
	}
}

func (x *exchange) WriteHeader(code int) {
	switch {
	case code == http.StatusSwitchingProtocols:
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.taken {
			return
		}
		x.begun.Store(true)
		copyHeader(x.w.Header(), x.own)
		x.w.WriteHeader(code)
	case code >= 100 && code < 200:
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.taken || x.begun.Load() {
			return
		}
		copyHeader(x.w.Header(), x.own)
		x.w.WriteHeader(code)
		clear(x.w.Header())
	case x.begin(code):
		x.w.WriteHeader(code)
	}
}

func (x *exchange) Write(b []byte) (int, error) {
	if !x.begin(http.StatusOK) {
		return 0, ErrLastCall
	}
	if x.events != nil {
		return x.writeEvents(b)
	}
	return x.w.Write(b)
}

// FlushError is what http.ResponseController looks for.
func (x *exchange) FlushError() error {
	if !x.begin(http.StatusOK) {
		return ErrLastCall
	}
	return http.NewResponseController(x.w).Flush()
}

// Flush is http.Flusher's.
func (x *exchange) Flush() { _ = x.FlushError() }

// Hijack is http.Hijacker's.
func (x *exchange) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.taken {
		return nil, nil, ErrLastCall
	}
	p, isHeadWritten := x.c.p, x.begun.Load()
	nc, rw, err := http.NewResponseController(x.w).Hijack()
	if err != nil {
		return nil, nil, err
	}
	x.hijacked.Store(true)
	x.begun.Store(true)
	if isWebSocket(x.r) {
		socket := &webSocket{Conn: nc, p: p}
		if isHeadWritten {
			socket.head = headWritten
		}
		rw.Writer.Reset(socket)
		if nc = socket; x.lastWord == nil {
			x.lastWord = socket.lastCall
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	x.c.hijacked = x
	p.tell()
	return nc, rw, nil
}

// Unwrap gives http.ResponseController the rest: deadlines, full duplex.
func (x *exchange) Unwrap() http.ResponseWriter { return x.w }

// claim takes the answer from the handler; false when that has begun. Until answer, which has to follow, the
// handler can neither write nor end the request.
func (x *exchange) claim() bool {
	x.mu.Lock()
	if x.taken || x.begun.Load() {
		x.mu.Unlock()
		return false
	}
	x.taken = true
	return true
}

func (x *exchange) answer(answer http.HandlerFunc) {
	defer x.mu.Unlock()
	clear(x.w.Header())
	x.w.Header().Set("Connection", "close")
	answer(x.w, x.r)
	_ = http.NewResponseController(x.w).Flush()
}

func (x *exchange) conversation() drain.Conversation {
	protocol := "http/1.1"
	switch {
	case x.hijacked.Load():
		protocol = strings.ToLower(x.r.Header.Get("Upgrade"))
		if protocol == "" {
			protocol = "tcp"
		}
	case isGRPC(x.r):
		protocol = "grpc"
	case x.r.ProtoMajor == 2:
		protocol = "http/2"
	}
	return drain.Conversation{
		Peer: x.c.RemoteAddr().String(), Protocol: protocol,
		Request: x.r.Method + " " + brief(x.r.RequestURI),
		Age:     drain.Millis(time.Since(x.began)),
	}
}

// brief cuts a target, in bytes.
func brief(target string) string {
	const most = 100
	if len(target) <= most {
		return target
	}
	return strings.ToValidUTF8(target[:most], "") + "…"
}

func isGRPC(r *http.Request) bool {
	return r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc")
}
