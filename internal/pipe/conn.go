package pipe

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lastcall-dev/lastcall/internal/accesslog"
	"github.com/lastcall-dev/lastcall/internal/tcp"
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

// conn is one conversation: a client's connection and its own to the app.
//
// mu guards what both directions and the drain look at. wmu is held while bytes
// are written to the client, so that the last call's reply does not fall into
// another message. The fields of up and of down belong to their goroutine.
type conn struct {
	p       *Pipe
	in      *listener
	client  *tcp.Socket
	origin  netip.AddrPort              // of a captured connection: where it wanted to go
	hello   atomic.Pointer[tcp.TLSInfo] // of TLS that ends here or passes through; nil before or without
	surplus bool                        // beyond the listener\'s limit: it gets a 503
	app     *tcp.Socket                 // nil until dialled; set by up, before down starts, under mu
	began   time.Time

	mu           sync.Mutex
	mode         mode
	queue        queue // forwarded and not yet answered
	paused       bool  // up reads nothing until the queue has room
	arriving     bool  // a request is on its way from the client
	responding   bool  // the final response to the oldest request has begun
	last         bool  // nothing more is forwarded from the client
	over         bool  // we have ended it: nothing more is sent to the client
	halfClosed   bool  // the client has sent its FIN
	counted      bool  // in the pipe's count of open connections
	busy         bool  // in the pipe's count of busy connections
	endedIdle    bool  // we have ended it while nothing was due
	raced        bool  // a request met our closing
	answered     bool  // a local reply is on its way
	grown        bool  // its stacks have grown
	fresh        bool  // accepted while idle ones are closed, and nothing has come yet
	idleSince    time.Time
	refusal      *reply    // what the client gets when queue is empty
	endsWithConn bool      // the response to the oldest request ends with the connection
	resets       bool      // our end is a reset
	content      content   // of the response to the oldest request; finite for one that has to end by itself
	reconnects   bool      // the client of this response asks again when it has ended, whatever its end
	word         *lastWord // nil when none has been asked for
	next, prev   *conn     // of the pipe's list, guarded by its mutex

	wmu       sync.Mutex
	streaming bool        // a body that consists of parts is under way to the client; guarded by wmu
	asked     atomic.Bool // the last word is asked for
	connects  atomic.Bool // to an app that is not known to be restarted
	leaves    atomic.Bool // its app is about to be restarted: what it says is said to be the last

	waitsUntil time.Time // how long it waits for an app that is restarted; up's own
	waitedOut  bool      // the app was not back by then; up's own

	up      up
	down    down
	h2      *h2           // nil when it is no HTTP/2; set by up, under mu
	ws      *webSocket    // nil when it is none; set by down, under mu and wmu
	decided chan struct{} // closed when an upgrade has been answered
	ended   chan struct{} // closed when down has ended; nil when it never began
}

// request is what has to be known of a request until it is answered.
type request struct {
	began   time.Time
	line    []byte // method and target, cut at maxLine
	isHead  bool
	connect bool
	upgrade bool
	wantsWS bool   // the upgrade is to WebSocket
	close   bool   // the client said Connection: close, or HTTP/1.0
	quiet   bool   // does not count: of a prober or scraper
	told    bool   // counted and logged as finished
	status  int    // of its final response; 0 before
	h2c     []byte // the client's SETTINGS, when the upgrade is to HTTP/2
	held    int    // bytes that it holds beside its slot, about
	entry   *accesslog.Entry
}

// maxLine is how much of a request line is kept for the report, bytes.
const maxLine = 256

// serve takes a connection from its first byte to its last.
func (c *conn) serve() {
	if c.greet() {
		c.serveUp()
	} else {
		c.cleanUp()
	}
}

// greet returns whether there is a connection to go on with.
func (c *conn) greet() bool {
	if c.in.tls != nil && !c.shakeHands() {
		return false
	}
	switch c.in.Protocol {
	case HTTP:
		c.up.state = upHead // a preface of HTTP/2 is looked for there
		if c.surplus {
			c.awaitWord()
		}
	case TCP:
		c.up.state = upOpaque
		return c.dial() == nil
	case Auto:
		c.setArriving(true) // what the client has sent is not read meanwhile
		if err := c.dial(); err != nil {
			c.awaitWord() // HTTP is told in its way, when a request comes
		}
		c.setArriving(false)
	}
	return true
}

// serveUp is the way from the client, to its end and the connection's.
func (c *conn) serveUp() {
	if c.runUp() {
		go c.serveUp()
		return
	}
	if c.ended != nil {
		<-c.ended
	}
	c.cleanUp()
}

// serveDown is the way back, to its end.
func (c *conn) serveDown() {
	if c.runDown() {
		go c.serveDown()
		return
	}
	close(c.ended)
}

// dial connects to the app and starts the way back. It does so on a goroutine of
// its own: connecting takes a deep stack, which would stay with a tunnel, for that is
// never idle and sheds none.
func (c *conn) dial() error {
	if c.surplus {
		return errSurplus
	}
	done := make(chan error, 1)
	go func() { done <- c.connect() }()
	return <-done
}

func (c *conn) connect() error {
	app, err := c.dialApp()
	defer c.connected()
	if err != nil {
		c.waitedOut = errors.Is(err, errRestarting)
		c.in.stats.connectFailed.Add(1)
		c.p.complain("the app cannot be reached; its clients get a 503", "app", c.appName(), "error", err)
		return err
	}
	s, err := tcp.NewSocket(app.(*net.TCPConn))
	if err != nil {
		_ = app.Close()
		return err
	}
	c.mu.Lock()
	c.app, c.ended = s, make(chan struct{})
	c.in.stats.connected.Add(1)
	c.in.stats.appOpen.Add(1)
	over := c.over
	c.mu.Unlock()
	if over { // the pipe has been killed meanwhile
		s.Shut()
	}
	go c.serveDown()
	return nil
}

// appName is where the app is, for logs.
func (c *conn) appName() string {
	if c.in.App == "" {
		return c.origin.String()
	}
	return c.in.App
}

// setArriving makes the connection busy, or no longer, for what is not in the
// queue yet. One that has become idle without a request while idle ones are closed
// has a moment for its first.
func (c *conn) setArriving(arriving bool) {
	c.mu.Lock()
	c.arriving = arriving || c.fresh
	c.recount()
	c.mu.Unlock()
	if !arriving && c.p.closing.holds() {
		c.p.endLater(c, freshTime, unreadTime)
	}
}

func (c *conn) cleanUp() {
	c.mu.Lock()
	if !c.over {
		c.over = true
	}
	resets := c.resets
	unanswered := c.queue.take()
	if c.h2 != nil {
		c.closeStreams(accesslog.ClientClosed)
	}
	c.recount()
	c.mu.Unlock()
	for i := range unanswered {
		q := &unanswered[i]
		if q.status == http.StatusSwitchingProtocols {
			c.finish(q, q.status, accesslog.ViaUpstream) // a tunnel ends as it likes
		} else {
			c.finish(q, q.status, accesslog.ClientClosed)
		}
	}
	c.logOpaque()
	if resets { // without TLS' close_notify
		_ = c.client.TCPConn.Close()
	} else {
		_ = c.client.Close()
	}
	if c.app != nil {
		_ = c.app.Close()
		c.in.stats.appOpen.Add(-1)
	}
	c.up.release()
	c.p.remove(c)
}

// toClient writes to the client unless the last call has taken the connection.
func (c *conn) toClient(p []byte, more bool) error {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	if c.isOver() {
		return net.ErrClosed
	}
	return c.client.Send(p, more)
}

func (c *conn) isOver() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.over
}

// carry moves the rest of one direction, by splice(2) where the kernel can, and
// passes the end on as an end. It returns how many bytes.
func (c *conn) carry(to, from *tcp.Socket) (carried uint64) {
	for {
		n, err := tcp.Move(to, from)
		carried += uint64(n)
		switch {
		case err == nil:
			_ = to.CloseWrite()
			return carried
		case errors.Is(err, os.ErrDeadlineExceeded) && !c.isOver():
			_ = from.SetReadDeadline(time.Time{}) // it was for the sniffing
		default:
			to.Shut()
			if !c.isOver() { // else the client has its FIN, and a moment to answer it
				from.Shut()
			}
			return carried
		}
	}
}
