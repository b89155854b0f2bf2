package pipe

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/accesslog"
	"github.com/lastcall-dev/lastcall/internal/sidecar/tcp"
	"github.com/lastcall-dev/lastcall/internal/wire/earlyend"
)

// mode is what a connection has turned out to carry.
type mode uint8

const (
	undecided mode = iota // no byte yet, or too few
	modeHTTP1
	modeH2
	modeWS
	opaque
)

// conn is a client's connection and its own connection to the app.
//
// mu guards what both directions and the drain read. Methods whose names end in Locked need it. wmu is held while bytes
// are written to the client, so that a reply at the last call cannot land inside another message. up and down belong to
// their goroutines.
type conn struct {
	p         *Pipe
	in        *listener
	client    *tcp.Socket
	origin    netip.AddrPort              // of a captured connection: its destination
	hello     atomic.Pointer[tcp.TLSInfo] // of TLS that ends here or passes through; nil before or without
	overLimit bool                        // of the listener's connections: it gets a 503
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
	response    response
	counted     bool // in the pipe's count of open connections
	busy        bool // in the pipe's count of busy connections
	opaque      bool // in its count of busy opaque ones
	idleSince   time.Time
	stacksGrown bool
	lingers     bool  // it has sent its FIN, and waits for the client's
	hurried     bool  // it no longer does, and needs only a processor to leave
	next, prev  *conn // of the pipe's list, guarded by its mutex

	wmu               sync.Mutex
	streaming         bool        // a body of parts is being sent to the client; guarded by wmu
	lastWordRequested atomic.Bool // see lastWord

	restart restarting
	turns   turns       // of an opaque connection
	share   share       // of the budget
	evicted atomic.Bool // it was ended for the memory's sake

	up      up
	down    down
	h2      *h2           // nil unless it is HTTP/2; set by up, under mu
	ws      *webSocket    // nil unless it is one; set by down, under mu and wmu
	decided chan struct{} // closed when an upgrade has been answered
	ended   chan struct{} // closed when down has ended; nil if it was never started
}

// response is the response to the oldest request.
type response struct {
	begun      bool             // its final head has been received
	untilClose bool             // it ends with the connection
	content    earlyend.Content // Unknown: it may not be ended early
	reconnects bool             // its client requests it again after any end
}

// restarting is what a connection knows of a restart of its app. deadline and timedOut are up's.
type restarting struct {
	dialing  atomic.Bool // connects to an app that is not known to be restarted
	leaves   atomic.Bool // its app is about to be restarted: each message announces the close
	deadline time.Time   // for the app to come back
	timedOut bool
}

// request is what is kept of a request until it is answered.
type request struct {
	began   time.Time
	line    []byte // method and target, cut at maxLine
	isHead  bool
	connect bool
	upgrade bool
	wantsWS bool // the upgrade is to WebSocket
	close   bool // the client sent Connection: close, or HTTP/1.0
	quiet   bool // does not count: of a prober or scraper
	logged  bool // counted and logged as finished
	status  int  // of its final response; 0 before
	held    int  // bytes that it holds in addition to its slot, about
	entry   *accesslog.Entry
}

// maxLine is how much of a request line is kept for the report, bytes.
const maxLine = 256

// appName is the app's address, for logs.
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
