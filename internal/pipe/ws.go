package pipe

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/lastcall-dev/lastcall/internal/accesslog"
	"github.com/lastcall-dev/lastcall/internal/wire/ws"
)

// webSocket is what a connection knows when it carries one (RFC 6455). Bytes go
// through as they are; the frames are followed by their headers only, so that at
// the end a close frame can be put in between two messages. An idle one holds no
// buffer, which an opaque connection, moved by splice(2), does: it has two pipes.
//
// The ending: the client gets our close frame, and nothing after it. It answers
// with one of its own, which goes on to the app, and so tells it; where no answer
// comes, the app gets one from us. Then both get their FIN.
type webSocket struct {
	up        ws.Follower // up's own
	down      ws.Follower // guarded by wmu
	closeSent atomic.Bool
}

// wsReason is what our close frames say.
const wsReason = accesslog.MessageLastCall

// becomeWebSocket follows frames from the app's 101 on. mu is held.
func (c *conn) becomeWebSocketLocked() {
	c.mode = modeWS
	c.ws = &webSocket{up: ws.Follower{Masked: true}}
}

// passWebSocket passes on what the app has sent.
func (c *conn) passWebSocket() bool {
	b := c.down.buf
	c.wmu.Lock()
	if c.ws.closeSent.Load() || c.hasEnded() { // nothing may follow a close frame
		b.R = b.W
		c.wmu.Unlock()
		return true
	}
	f := &c.ws.down
	stop := ws.AtClose
	if c.lastWordRequested.Load() {
		stop = ws.AtMessage
	}
	n := f.Follow(b.Bytes(), stop)
	if f.IsClosed() || f.IsLost() {
		n = b.W - b.R
	}
	err := c.client.Send(b.B[b.R:b.R+n], false)
	if err != nil {
		f.Lose()
	}
	b.R += n
	if c.lastWordRequested.Load() {
		c.sendLastWord(false)
	}
	c.wmu.Unlock()
	c.tryLastWord()
	return err == nil
}

// forwardWebSocket forwards what the client has sent.
func (c *conn) forwardWebSocket() {
	b, f := c.up.buf, &c.ws.up
	n := f.Follow(b.Bytes(), ws.AtClose)
	if f.IsClosed() || f.IsLost() {
		n = b.W - b.R
	}
	if err := c.app.Send(b.B[b.R:b.R+n], false); err != nil {
		c.up.state = upDiscard // the app's own end says how it goes on
	}
	b.R += n
	if f.IsClosed() && c.ws.closeSent.Load() {
		c.endWebSocket()
	}
}

// sendWebSocketClose says goodbye to the client in between two messages, with force
// in between the frames of one (RFC 6455, 5.4). wmu is held.
func (c *conn) sendWebSocketClose(force bool) {
	w := c.ws
	if w.closeSent.Load() || c.hasEnded() || !w.down.BetweenMessages() && !(force && w.down.BetweenFrames()) {
		return
	}
	_ = c.client.SetWriteDeadline(time.Now().Add(stuckTime))
	w.closeSent.Store(true)
	if err := c.client.Send(ws.AppendClose(nil, c.p.cfg.WebSocketCode, wsReason, false), false); err != nil {
		_ = c.client.SetReadDeadline(time.Now())
		return
	}
	_ = c.client.SetReadDeadline(time.Now().Add(lingerTime)) // for its answer; up ends it then
}

// endWebSocket ends the connection after the client has answered our close frame, or has not in time. up calls it.
func (c *conn) endWebSocket() {
	c.mu.Lock()
	if c.end.done() {
		c.mu.Unlock()
		return
	}
	c.end.phase, c.end.by = ended, &endLastCall
	if c.end.word != nil {
		c.end.word.ending = c.webSocketEnding()
	}
	c.mu.Unlock()
	c.up.state = upDiscard
	if c.ws.up.BetweenFrames() {
		_ = c.app.SetWriteDeadline(time.Now().Add(stuckTime))
		_ = c.app.Send(ws.AppendClose(nil, c.p.cfg.WebSocketCode, wsReason, true), false)
	}
	// The app may still write: a reset by us must not overtake what it has not read.
	_ = c.app.CloseWrite()
	_ = c.app.SetReadDeadline(time.Now().Add(lingerTime))
	_ = c.client.CloseWrite()
	_ = c.client.SetReadDeadline(time.Now().Add(lingerTime))
	c.logLastWord()
}

// webSocketEnding is how the report describes the end.
func (c *conn) webSocketEnding() string {
	if c.ws.closeSent.Load() {
		return "close " + strconv.Itoa(c.p.cfg.WebSocketCode)
	}
	return "truncated"
}
