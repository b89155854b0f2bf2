package pipe

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/accesslog"
	"github.com/lastcall-dev/lastcall/internal/sidecar/counters"
	"github.com/lastcall-dev/lastcall/internal/sidecar/tcp"
	"github.com/lastcall-dev/lastcall/internal/wire/earlyend"
	"github.com/lastcall-dev/lastcall/internal/wire/http1"
	"github.com/lastcall-dev/lastcall/internal/wire/http2"
)

// down is the app side. Its fields and methods belong to its goroutine.
type down struct {
	c *conn
	reader
	body   earlyend.Body // wmu guards it while conn.streaming is set
	head   []byte        // a rewritten head
	closes bool          // the app announces that it closes
	holds  bool          // its first bytes may be the beginning of HTTP/2
	late   bool          // they have had their time
	inline bool          // it runs in up's goroutine, see answerAlone
}

// run reads from the app until either side has ended. It reports whether to continue in a new goroutine.
func (d *down) run() (again bool) {
	if d.c.in.Protocol == TCP {
		d.mode = opaque
	} else {
		for reads := true; reads; {
			if err := d.c.app.WhenReadable(d.readApp); d.c.app.WasWoken(err) {
				return true
			} else if errors.Is(err, os.ErrDeadlineExceeded) && d.part() {
				continue
			} else if err != nil {
				d.err = err
			}
			if d.letGo() {
				continue
			}
			if reads = d.splices > 0 && d.err == nil; reads {
				if n := d.splice(&d.body.Body, d.c.client, d.c.app, &d.c.wmu); d.within {
					d.noteSent(int(n))
				}
			}
		}
	}
	if d.mode == opaque && d.err == nil {
		d.carryDown()
		return false
	}
	d.appEnded()
	d.release()
	return false
}

// readApp handles bytes from the app. It returns false to wait for more.
func (d *down) readApp(fd uintptr) bool {
	for {
		if d.buf == nil {
			d.buf = tcp.GetBuffer(true)
		}
		buf, ok := d.buf.Room(max(d.c.p.cfg.MaxHead, maxAppBlock) + tcp.SmallBuffer)
		d.buf = buf
		if !ok { // only a head can fill it
			d.err = http1.ErrHeadTooLarge
			return true
		}
		if !d.fill(fd, d.c.app) {
			return false
		}
		if d.err != nil {
			return true
		}
		if !d.fromApp() {
			return true
		}
		d.part()
		mayInsert := d.mode == modeWS && d.c.ws.closeSent.Load() // a close frame, behind which nothing is forwarded
		if !mayInsert && d.splicesNext(&d.body.Body, d.c.client, d.c.app) {
			return true
		}
	}
}

// fromApp forwards complete parts. It returns false if down must leave its read loop: the connection has ended, the
// output is invalid (err is set), or the rest is opaque.
func (d *down) fromApp() bool {
	b := d.buf
	for b.R < b.W {
		switch {
		case d.mode == opaque:
			return false
		case d.within:
			if ok := d.passMessage(0); !ok {
				return false
			}
		case d.mode == modeWS:
			if ok := d.passWebSocket(); !ok {
				return false
			}
		case d.mode == modeDatabase:
			if !d.passDatabase() {
				return false
			}
		case d.mode == modeH2:
			if d.c.modeNow() == opaque { // the app spoke HTTP/2 first, but the client does not
				d.mode = opaque
				return false
			}
			return d.passFrames()
		default:
			rest := b.Bytes()
			if d.scanned == 0 {
				switch d.sniffApp(rest) {
				case modeH2:
					d.c.noteHTTP()
					d.mode = modeH2
					continue
				case modeDatabase:
					d.mode = modeDatabase
					continue
				case opaque:
					d.mode = opaque
					return false
				case undecided:
					return true
				}
				if d.isBare(rest) {
					d.takeHead(&http1.Head{Status: http.StatusOK, Close: true})
					continue
				}
			}
			n := http1.ResponseHeadLen(rest, d.scanned)
			if n == 0 {
				if d.scanned == 0 && d.endIfSurplus() {
					return false
				}
				if d.scanned = len(rest); d.scanned > max(d.c.p.cfg.MaxHead, maxAppBlock) {
					d.err = http1.ErrHeadTooLarge
					return false
				}
				return true
			}
			d.scanned = 0
			if ok := d.passHead(n); !ok {
				return false
			}
		}
	}
	return true
}

// sniffApp detects the protocol from the first bytes of a message of the app. An app that sends before any request
// does not use HTTP, unless it sends the SETTINGS of HTTP/2, as some servers do. It wakes up, which may hold a few
// bytes back.
func (d *down) sniffApp(b []byte) mode {
	c := d.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if d.holds && (d.late || len(b) >= http2.HeaderLen || !http2.MayBeServerPreface(b) || c.mode != undecided) {
		d.holds = false
		_ = c.app.SetReadDeadline(time.Time{})
	}
	if c.mode == modeH2 && c.h2.isOtherLocked(b) {
		return opaque
	}
	if c.mode != undecided || c.queue.len() > 0 || c.in.Protocol != Auto {
		if c.mode == undecided {
			return modeHTTP1
		}
		return c.mode
	}
	if http2.MayBeServerPreface(b) && !d.late {
		if len(b) < http2.HeaderLen {
			if !d.holds {
				d.holds = true
				_ = c.app.SetReadDeadline(time.Now().Add(appSniffTime))
			}
			return undecided
		}
		c.h2 = c.newH2()
		return modeH2
	}
	c.mode = opaque
	c.recountLocked()
	c.noteOpaque(counters.OpaqueServerFirst)
	_ = c.client.SetReadDeadline(time.Now())
	return opaque
}

// isBare reports whether the app's first answer has no head, as in HTTP/0.9, or that of another protocol (ICY, NTRIP):
// its client gets the bytes until the app ends them.
func (d *down) isBare(b []byte) bool {
	const version = "HTTP/"
	c, n := d.c, min(len(b), len(version))
	c.mu.Lock()
	defer c.mu.Unlock()
	return string(b[:n]) != version[:n] && c.in.Protocol == Auto && !c.answered && c.end.phase < replying &&
		c.queue.len() == 1 && !c.queue.at(0).isHead
}

// appSniffTime is how long the app's first bytes may be held because they may become a frame of HTTP/2.
const appSniffTime = 100 * time.Millisecond

// letGo decides about the app's first bytes when no more have come in time, or the app has ended. It reports whether to
// read on.
func (d *down) letGo() bool {
	if !d.holds || d.err == nil {
		return false
	}
	err := d.err
	d.late, d.err = true, nil
	if !d.fromApp() { // bytes: the end comes again
		return false
	}
	isLate := errors.Is(err, os.ErrDeadlineExceeded)
	if !isLate {
		d.err = err
	}
	return isLate
}

// endIfSurplus ends the connection if the app sends a response without a request, such as a 408 on an idle connection.
// The client would take it, or a part of it, for the response to its next request.
func (d *down) endIfSurplus() bool {
	c := d.c
	c.mu.Lock()
	isDue, isDone := c.queue.len() > 0, c.end.done()
	c.mu.Unlock()
	if !isDue && !isDone {
		c.p.warn("app sent a response without a request; closing its connection", "app", c.appName())
		c.endBy(onAppClosed)
	}
	return !isDue
}

func invalidity(err error) counters.Invalid {
	var invalid *http1.Error
	if !errors.As(err, &invalid) {
		return counters.InvalidIncomplete // the app has ended its connection
	}
	switch invalid {
	case http1.ErrHeadTooLarge:
		return counters.InvalidTooLarge
	case http1.ErrFraming:
		return counters.InvalidFraming
	case http1.ErrChunkSize, http1.ErrChunkExt, http1.ErrChunkEnd, http1.ErrChunkLine, http1.ErrTrailer,
		http1.ErrTrailerTooLarge:
		return counters.InvalidChunks
	}
	return counters.InvalidSyntax
}

// appEnded handles the end of the app's output, or output that is not understood.
func (d *down) appEnded() {
	c := d.c
	c.mu.Lock()
	done, responding, due := c.end.done(), c.response.begun, c.queue.len() > 0
	answered := c.uploads && !due // before the request had arrived
	c.appHalf = errors.Is(d.err, io.EOF)
	mode, hasStreams := c.mode, c.h2 != nil && len(c.h2.streams) > 0
	c.appReset = isReset(d.err) && (mode != modeH2 || hasStreams) // else it would overtake the GOAWAY
	c.mu.Unlock()
	_ = c.app.SetReadDeadline(time.Time{})
	if done || d.leaveToUp() {
		return
	}
	isFIN := errors.Is(d.err, io.EOF)
	_, isInvalid := errors.AsType[*http1.Error](d.err) // the app has sent something other than HTTP
	switch {
	case d.err == nil, errors.Is(d.err, net.ErrClosed): // the client has gone
		c.endBy(onClientGone)
	case mode == modeH2 && isInvalid:
		c.p.warn("app sent invalid HTTP/2; its clients get 502", "app", c.appName(), "error", d.err)
		c.h2.endFor(cause{on: onAppInvalid}, http2.NoError)
	case mode == modeH2 && hasStreams:
		// Behind all frames that the app has sent. Its client repeats on another connection the requests that the app's
		// GOAWAY, if any, has not named (RFC 9113, 6.8).
		c.mu.Lock()
		if !c.end.done() {
			c.p.failed.Add(uint64(c.h2.counted))
			c.h2.closeStreamsLocked(accesslog.Terminated)
		}
		c.mu.Unlock()
		c.endBy(onAppClosed)
	case mode == modeH2:
		c.h2.sendFinalGoAway()
		c.endBy(onAppClosed)
	case responding && d.body.Kind == http1.CloseBody && isFIN: // the response is complete
		d.responseEnds(true)
	case answered:
		c.endBy(onAnswered)
	case isInvalid && due:
		d.noteInvalid("invalid response from the app; its client gets 502, or a part")
		c.endBy(onAppInvalid)
	case due && !responding && d.scanned > 0 && isEnd(d.err): // without a part of the head, its client would repeat it
		d.noteInvalid("the app has ended its connection within a response head")
		_ = c.toClient(d.buf.Bytes(), false)
		c.endBy(onAppClosed)
	default:
		c.endBy(onAppClosed)
	}
	c.shutApp()
}

func (d *down) noteInvalid(what string) {
	d.c.in.stats.Invalid[invalidity(d.err)].Add(1)
	d.c.p.warn(what, "app", d.c.appName(), "error", d.err)
}
