package httpdrain

import (
	"bufio"
	"cmp"
	"crypto/tls"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/wire/eventstream"
)

// exchange is a request and its response, which belongs to the handler until the last call claims it.
type exchange struct {
	w     http.ResponseWriter
	c     *conn
	r     *http.Request
	body  *requestBody // nil when the request has none, and with HTTP/2
	began time.Time
	own   http.Header // the handler's own header, because the last call may write at the same time

	hijacked   atomic.Bool
	begun      atomic.Bool        // the response belongs to the handler for good
	broken     atomic.Bool        // the last call has truncated the response
	mu         sync.Mutex         // guards changes of begun, and the fields below
	taken      bool               // the last call has responded
	onLastCall func() string      // OnLastCall's
	ending     eventstream.Ending // of a truncated response

	events  *eventstream.Stream // nil unless the response is an event stream that can be followed; set before begun
	writing sync.Mutex          // guards the state of events; held while an event stream is written
}

// OnLastCall is for a handler whose response to w has begun, or whose connection is hijacked, and whose
// protocol has an ending of its own. At the last call end is called once, while the handler runs or the
// hijacked connection is open. It must not block, must make the conversation end soon, and returns the
// name of the ending for the report. Without it, or if it returns "", a response is truncated, a WebSocket
// gets a close frame, and any other hijacked connection a FIN.
func OnLastCall(w http.ResponseWriter, end func() string) {
	for {
		if x, ok := w.(*exchange); ok {
			x.mu.Lock()
			x.onLastCall = end
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

// protocolEnding returns the name of the ending, "" if there is none.
func (x *exchange) protocolEnding() string {
	x.mu.Lock()
	end := x.onLastCall
	x.mu.Unlock()
	defer x.c.p.recover()
	if end == nil {
		return ""
	}
	return end()
}

func (p *Plane) serve(w http.ResponseWriter, r *http.Request) {
	c, ok := r.Context().Value(connKey{}).(*conn)
	if !ok {
		p.handler.ServeHTTP(w, r)
		return
	}
	if tc, ok := c.Conn.(*tls.Conn); ok { // of the program's own listener
		state := tc.ConnectionState()
		r.TLS = &state
	} else if c.h2 != nil {
		r.TLS = c.h2.tls // which the carrier does not know
	}
	x := &exchange{w: w, c: c, r: r, began: time.Now(), own: http.Header{}}
	x.followBody()
	ignored := p.o.Uncounted != nil && p.o.Uncounted(r)
	p.mu.Lock()
	p.working++
	c.hadRequest = true
	if c.h2 != nil {
		c.h2.closing.Client = c.h2.closing.Client.Requested(isGRPC(r), len(r.Header["X-Forwarded-For"]) > 0)
		c.h2.shutLocked()
	}
	if c.ignored = ignored; !ignored {
		p.arrivals++
		c.requests[x] = struct{}{}
	}
	p.mu.Changed()
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.working--
		delete(c.requests, x)
		if c.h2 != nil { // after a cancelled stream, net/http neither sends anything nor changes the state
			c.h2.shutLocked()
		}
		p.mu.Changed()
	}()
	x.handle()
	x.finish()
	x.leaveBody()
}

// handle calls the handler.
func (x *exchange) handle() {
	isWhole := false
	defer func() {
		if !isWhole { // a panic, the handler's or endBody's, makes net/http close the connection
			x.c.tear()
		}
	}()
	func() {
		defer x.endBody()
		x.c.p.handler.ServeHTTP(x, x.r)
	}()
	isWhole = true
}

// finish writes the parts that a handler leaves to the server: trailers, or an empty response.
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

// begin gives the response to the handler, with Connection: close while draining. It returns false if the last call was
// first.
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
	maps.Copy(x.w.Header(), x.own)
	// Over HTTP/2 a GOAWAY does. Not by ProtoMajor: net/http hands a preface to the handler if HTTP/2 is off.
	if x.c.p.draining.Load() && x.c.h2 == nil || x.body.isRefused(status) {
		x.w.Header().Set("Connection", "close")
	}
	x.follow(status)
	x.c.delimited.Store(x.endsWithConnection(status))
	x.begun.Store(true)
	return true
}

func (x *exchange) WriteHeader(code int) {
	switch {
	case code >= 100 && code < 200:
		isLast := code == http.StatusSwitchingProtocols
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.taken || x.begun.Load() && !isLast {
			return
		}
		maps.Copy(x.w.Header(), x.own)
		x.w.WriteHeader(code)
		if x.begun.Store(isLast); !isLast {
			clear(x.w.Header())
		}
	case code < 100 || code > 999: // net/http panics, and a recovered handler may respond with other headers
		x.w.WriteHeader(code)
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

// ReadFrom implements io.ReaderFrom, so that net/http can send a file without copying it.
func (x *exchange) ReadFrom(from io.Reader) (int64, error) {
	switch {
	case !x.begin(http.StatusOK):
		return 0, ErrLastCall
	case x.events != nil:
		return io.Copy(struct{ io.Writer }{x}, from)
	}
	return io.Copy(x.w, from)
}

// CloseNotify implements http.CloseNotifier, without which gin's Stream panics.
func (x *exchange) CloseNotify() <-chan bool {
	return x.w.(interface{ CloseNotify() <-chan bool }).CloseNotify()
}

// FlushError is the method that http.ResponseController looks for.
func (x *exchange) FlushError() error {
	if !x.begin(http.StatusOK) {
		return ErrLastCall
	}
	return http.NewResponseController(x.w).Flush()
}

// Flush implements http.Flusher.
func (x *exchange) Flush() { _ = x.FlushError() }

// Hijack implements http.Hijacker.
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
	x.c.delimited.Store(false)
	if strings.EqualFold(x.r.Header.Get("Upgrade"), "websocket") {
		socket := &webSocket{Conn: nc, p: p}
		if isHeadWritten {
			socket.head = headWritten
		}
		rw.Writer.Reset(socket)
		if nc = socket; x.onLastCall == nil {
			x.onLastCall = socket.lastCall
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	x.c.hijacked = x
	p.mu.Changed()
	return nc, rw, nil
}

// Unwrap gives http.ResponseController access to deadlines and full duplex.
func (x *exchange) Unwrap() http.ResponseWriter { return x.w }

// claim takes the response from the handler. It returns false if the response has begun. Until answer, which must
// follow, the handler can neither write nor end the request.
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
	defer x.c.p.recover()
	clear(x.w.Header())
	x.w.Header().Set("Connection", "close")
	answer(x.w, x.r)
	_ = http.NewResponseController(x.w).Flush()
}

func (x *exchange) conversation() drain.Conversation {
	protocol := "http/1.1"
	switch {
	case x.hijacked.Load():
		protocol = cmp.Or(strings.ToLower(x.r.Header.Get("Upgrade")), "tcp")
	case isGRPC(x.r):
		protocol = "grpc"
	case x.c.h2 != nil:
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
