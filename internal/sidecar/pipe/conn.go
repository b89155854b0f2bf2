package pipe

import (
	"container/list"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lastcall-dev/lastcall/internal/sidecar/accesslog"
	"github.com/lastcall-dev/lastcall/internal/sidecar/budget"
	"github.com/lastcall-dev/lastcall/internal/sidecar/tcp"
	"github.com/lastcall-dev/lastcall/internal/wire/earlyend"
	"github.com/lastcall-dev/lastcall/internal/wire/ws"
)

// mode is the protocol of a connection: as it has been detected, and as each side has come to follow it.
type mode uint8

const (
	undecided mode = iota // no byte yet, or too few
	modeHTTP1
	modeUpgrade // of the client's side, after a request for an upgrade: the answer decides about the protocol
	modeH2
	modeWS
	modeDatabase
	opaque
	modeOver // of the client's side: nothing is forwarded any longer
)

// conn is a client's connection and its own connection to the app.
//
// mu guards the fields that both directions and the drain read. Methods whose names end in Locked need it. wmu is held
// while bytes are written to the client, so that a reply at the last call cannot land inside another message. up and
// down belong to their goroutines.
type conn struct {
	p         *Pipe
	in        *listener
	client    *tcp.Socket
	origin    netip.AddrPort              // of a captured connection: its destination
	hello     atomic.Pointer[tcp.TLSInfo] // of TLS that ends here or passes through; nil before or without
	overLimit bool                        // of the listener's connections: it gets a 503
	reserved  *tcp.Reserved               // for app; nil unless descriptors are few
	app       *tcp.Socket                 // nil until dialled; set by up, before down starts, under mu
	began     time.Time

	mu          sync.Mutex
	mode        mode
	end         end
	queue       queue // forwarded and not yet answered
	paused      bool  // up reads nothing until the queue has room
	arriving    bool  // a request is on its way from the client
	awaitsFirst bool  // busy for a moment: its first request is expected
	halfClosed  bool  // the client has sent its FIN
	uploads     bool  // the client is within a request's body
	awaits100   bool  // no byte of that body has come, and no 100 of the app, for which the request waits
	decided     bool  // the latest upgrade has been answered
	ahead       bool  // bytes that are no request have been forwarded before
	appHalf     bool  // the app has ended its output, and may read the rest of that body
	appReset    bool  // the app has reset its connection
	response    response
	answered    bool // the app has answered a request on this connection of its own
	rejoins     bool // the app has ended its connection, and up connects to it again
	counted     bool // in the pipe's count of open connections
	busy        bool // in the pipe's count of busy connections
	opaque      bool // in its count of busy opaque ones
	idleSince   time.Time
	stacksGrown bool
	lingers     bool          // it has sent its FIN, and waits for the client's
	hurried     bool          // it no longer does, and needs only a processor to leave
	element     *list.Element // in the pipe's list; guarded by its mutex

	wmu               sync.Mutex
	streaming         bool        // a body of parts is being sent to the client; guarded by wmu
	lastWordRequested atomic.Bool // see lastWord

	restart restarting
	turns   turns // of an opaque connection
	share   budget.Share
	evicted atomic.Bool // it was ended for the memory's sake

	up    up
	down  down
	h2    *h2           // nil unless it is HTTP/2; set by up, under mu
	ws    *webSocket    // nil unless it is one; set by down, under mu and wmu
	db    *database     // nil unless it is one; set by up or before, under mu; then it stays
	ended chan struct{} // closed when down has ended; nil if it was never started
}

// response is the response to the oldest request.
type response struct {
	begun      bool             // its final head has been received
	untilClose bool             // it ends with the connection
	content    earlyend.Content // Unknown: it may not be ended early
	reconnects bool             // its client requests it again after any end
}

// restarting is a connection's part of a restart of its app. deadline and timedOut belong to up.
type restarting struct {
	dialing  atomic.Bool // connects to an app that is not known to be restarted
	leaves   atomic.Bool // its app is about to be restarted: each message announces the close
	deadline time.Time   // for the app to come back
	timedOut bool
}

// request is the part of a request that is kept until it is answered.
type request struct {
	began   time.Time
	line    []byte // method and target, cut at maxLine
	head    []byte // with line as its beginning, while the request may be repeated
	isHead  bool
	tunnel  int              // http1.Head's
	wantsWS bool             // the upgrade is to WebSocket
	close   bool             // the client sent Connection: close, or HTTP/1.0
	quiet   bool             // does not count: of a prober or scraper
	status  int              // of its final response; 0 before
	held    int              // bytes that it holds in addition to its slot, about
	poll    *accesslog.Reply // that ends a long poll early; nil for other requests
	entry   *accesslog.Entry
}

// maxLine is how much of a request line is kept for the report, bytes.
const maxLine = 256

func (c *conn) appName() string {
	if c.in.App == "" {
		return c.origin.String()
	}
	return c.in.App
}

// toClient writes to the client unless the connection has ended.
func (c *conn) toClient(p []byte, more bool) error {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	if c.hasEnded() {
		return net.ErrClosed
	}
	return c.client.Send(p, more)
}

func (c *conn) modeNow() mode {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mode
}

// reader is the state of reading from one side. It holds a buffer only while there is data in it.
type reader struct {
	mode    mode         // that this side follows; the other side may know more
	within  bool         // a body of HTTP/1
	frames  *ws.Follower // of modeWS
	buf     *tcp.Buffer
	large   bool   // the last read filled its buffer
	copies  bool   // splicing has failed: copy the rest
	scanned int    // bytes of the present head, without its end
	splices int64  // bytes to be moved within the kernel next
	carried uint64 // opaque bytes, for the log
	err     error  // of reading; io.EOF for a FIN
}

// isAtHead reports whether HTTP/1 is between messages, or within a head.
func (r *reader) isAtHead() bool { return r.mode == modeHTTP1 && !r.within }

func (r *reader) release() {
	if r.buf != nil {
		r.buf.Free()
		r.buf = nil
	}
}

// fill reads once. It returns false to wait for more.
func (r *reader) fill(fd uintptr, from *tcp.Socket) bool {
	buf := r.buf
	room := len(buf.B) - buf.W
	n, errno := from.Receive(fd, buf.B[buf.W:])
	switch {
	case errno == unix.EAGAIN:
		if buf.R == buf.W {
			r.release()
		}
		return false
	case errno != 0:
		r.err = os.NewSyscallError("read", errno)
	case n == 0:
		r.err = io.EOF
	default:
		r.large = n == room
		buf.W += n
	}
	return true
}

// queue holds the requests of a connection that were forwarded and are not answered yet, the oldest first. The slots
// behind them keep their request lines for reuse. The zero value is empty.
type queue struct {
	slots []request
	held  int // about how many bytes the requests hold in addition to their slots

	charged int // bytes of it that the budget counts
}

func (q *queue) len() int { return len(q.slots) }

// at is request i, counted from the oldest.
func (q *queue) at(i int) *request { return &q.slots[i] }

// push adds a request, and reuses the line of a former one.
func (q *queue) push() *request {
	n := q.len()
	if n == cap(q.slots) {
		q.slots = append(q.slots, request{})
	}
	q.slots = q.slots[:n+1]
	r := q.at(n)
	*r = request{line: r.line[:0]}
	return r
}

// pop removes the oldest request.
func (q *queue) pop() {
	oldest, last := *q.at(0), q.len()-1
	if cap(oldest.line) > 2*maxLine { // a head has made it long
		oldest.line = nil
	}
	copy(q.slots, q.slots[1:])
	*q.at(last) = request{line: oldest.line[:0]}
	q.slots, q.held = q.slots[:last], q.held-oldest.held
}

// drop removes the newest request and returns it.
func (q *queue) drop() request {
	last := q.len() - 1
	dropped := *q.at(last)
	*q.at(last) = request{} // its line goes with it
	q.slots, q.held = q.slots[:last], q.held-dropped.held
	return dropped
}

// hasRoom reports whether the queue has more slots than a client without pipelining needs.
func (q *queue) hasRoom() bool { return cap(q.slots) > 1 }

// holdsMuch reports whether one request holds more than the memory of a connection has room for.
func (q *queue) holdsMuch() bool { return q.held > slotMemory+entryMemory }

// slotMemory is the size of a slot with a request line, bytes.
const slotMemory = 384

// recharge returns by how much the budget's count of the queue changes: of a client that pipelines, or sends much.
func (q *queue) recharge() (change int) {
	now := 0
	switch {
	case q.hasRoom():
		now = (cap(q.slots)-1)*slotMemory + q.held
	case q.holdsMuch():
		now = q.held
	}
	change, q.charged = now-q.charged, now
	return change
}

func (q *queue) take() []request {
	all := q.slots
	*q = queue{charged: q.charged}
	return all
}
