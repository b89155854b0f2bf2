package pipe

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/wire/ws"
)

// webSocket is the state of a connection that carries one (RFC 6455). Bytes pass unchanged. Only the headers of frames
// are followed, so that a close frame can be inserted between two messages. An idle one holds no buffer, whereas an
// opaque connection moved by splice(2) holds two pipes.
//
// At its end the client gets a close frame, and nothing after it. Its own close frame passes to the app. If it sends
// none in time, the app gets one from the pipe. Then both get a FIN.
type webSocket struct {
	c         *conn
	up        ws.Follower // used by up only
	down      ws.Follower // guarded by wmu
	closeSent atomic.Bool
}

func (d *down) passWebSocket() bool {
	c := d.c
	b := d.buf
	c.wmu.Lock()
	if c.ws.closeSent.Load() || c.hasEnded() { // nothing may follow a close frame
		b.R = b.W
		c.wmu.Unlock()
		return true
	}
	f := d.frames
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

func (u *up) forwardWebSocket() {
	b, f := u.buf, u.frames
	n := f.Follow(b.Bytes(), ws.AtClose)
	if f.IsClosed() || f.IsLost() {
		n = b.W - b.R
	}
	if err := u.c.app.Send(b.B[b.R:b.R+n], false); err != nil {
		u.discard() // the end of the app's connection decides how to continue
	}
	b.R += n
	if f.IsClosed() && u.c.ws.closeSent.Load() {
		u.endWebSocket()
	}
}

// sendClose sends a close frame between messages, with force also between frames (RFC 6455, 5.4). wmu is held.
func (w *webSocket) sendClose(force bool) {
	c := w.c
	if w.closeSent.Load() || c.hasEnded() || !w.down.BetweenMessages() && !(force && w.down.BetweenFrames()) {
		return
	}
	_ = c.client.SetWriteDeadline(time.Now().Add(stuckTime))
	w.closeSent.Store(true)
	last := ws.AppendClose(nil, c.p.cfg.WebSocketCode, drain.MessageLastCall, false)
	if err := c.client.Send(last, false); err != nil {
		_ = c.client.SetReadDeadline(time.Now())
		return
	}
	_ = c.client.SetReadDeadline(time.Now().Add(lingerTime)) // for its close frame; then up ends the connection
}

// endWebSocket ends the connection after the client has answered our close frame, or has not in time. up calls it.
func (u *up) endWebSocket() {
	c := u.c
	c.mu.Lock()
	if c.end.done() {
		c.mu.Unlock()
		return
	}
	c.endLocked(onLastCall)
	if c.end.word != nil {
		c.end.word.ending = c.ws.endingName()
	}
	c.mu.Unlock()
	u.discard()
	if c.ws.up.BetweenFrames() {
		_ = c.app.SetWriteDeadline(time.Now().Add(stuckTime))
		_ = c.app.Send(ws.AppendClose(nil, c.p.cfg.WebSocketCode, drain.MessageLastCall, true), false)
	}
	// Read on: the app may still write, and a reset would discard its unread bytes.
	_ = c.app.CloseWrite()
	_ = c.app.SetReadDeadline(time.Now().Add(lingerTime))
	_ = c.client.CloseWrite()
	_ = c.client.SetReadDeadline(time.Now().Add(lingerTime))
	c.mu.Lock()
	requests := c.queue.take()
	c.recountLocked()
	c.mu.Unlock()
	c.finish(endings[onLastCall][inWebSocket].log, requests)
}

func (w *webSocket) endingName() string {
	if w.closeSent.Load() {
		return "close " + strconv.Itoa(w.c.p.cfg.WebSocketCode)
	}
	return drain.EndingTruncated
}
