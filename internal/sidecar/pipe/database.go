package pipe

import (
	"sync"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/counters"
	"github.com/lastcall-dev/lastcall/internal/wire/postgres"
	"github.com/lastcall-dev/lastcall/internal/wire/resp"
)

// database is the state of a connection to a database whose protocol is followed: it is busy within a transaction and
// while a reply is due, and idle in between. Bytes pass unchanged. In contrast to an opaque connection an idle one ends
// when the drain closes idle connections, and a busy one with the reply after which it is idle. Bytes that are not
// understood make the connection opaque.
//
// In PostgreSQL the client gets the server's own message for a shutdown before the FIN, and the server a Terminate.
// Redis has no messages for that.
type database struct {
	c *conn
	dialogue
	*databaseProtocol
	since time.Time // of the present transaction or command
	halts bool      // the server has our FIN, and answers the commands before it

	amu sync.Mutex // held while bytes are written to the server
}

// dialogue follows both sides of a connection. It is guarded by the connection's mu.
type dialogue interface {
	FromClient([]byte)
	FromServer([]byte)
	Idle() bool           // nothing is in progress
	HadRequest() bool     // since the login
	BetweenReplies() bool // a message from us may follow the server's last byte
	Lost() bool           // not followed; for good
}

type databaseProtocol struct {
	name     string
	isFirst  func([]byte) bool // whether these can be a client's first bytes
	follow   func() dialogue
	lastWord []byte // to the client, before our FIN; empty: none
	code     string // of it, for the report
	leave    []byte // to the server, before our FIN
}

var databases = [...]databaseProtocol{
	{name: Postgres.String(), isFirst: postgres.IsStartup, follow: func() dialogue { return new(postgres.Dialogue) },
		lastWord: postgres.AdminShutdown, code: "57P01", leave: postgres.Terminate},
	{name: Redis.String(), isFirst: resp.IsCommand, follow: func() dialogue { return new(resp.Dialogue) }},
}

// findDatabase is the protocol of a client's first bytes; nil if they are of none that is followed.
func findDatabase(b []byte) *databaseProtocol {
	for i := range databases {
		if databases[i].isFirst(b) {
			return &databases[i]
		}
	}
	return nil
}

func (p *databaseProtocol) followLocked(c *conn) {
	c.mode = modeDatabase
	c.db = &database{c: c, dialogue: p.follow(), databaseProtocol: p}
}

// isBusyLocked reports whether a transaction or a command is in progress. db may be nil.
func (db *database) isBusyLocked() bool { return db != nil && db.c.mode == modeDatabase && !db.Idle() }

// recountLocked counts the connection after bytes of either side. It returns false if it is no longer followed.
func (db *database) recountLocked() (followed bool) {
	c := db.c
	if c.mode == modeDatabase && db.Lost() {
		c.mode = opaque
		c.noteOpaque(counters.OpaqueUnknown)
	}
	if !c.busy {
		db.since = time.Now()
	}
	c.recountLocked()
	return c.mode == modeDatabase
}

// becomeDatabase follows the protocol that begins in the buffer. It returns false if the connection is opaque.
func (u *up) becomeDatabase() bool {
	c := u.c
	c.mu.Lock()
	if c.mode != undecided || c.end.last() { // the app spoke first
		c.mu.Unlock()
		return false
	}
	findDatabase(u.buf.Bytes()).followLocked(c)
	c.arriving = true // until the app is connected
	c.growsLocked()
	c.recountLocked()
	c.mu.Unlock()
	u.mode = modeDatabase
	u.dialOwed()
	if c.app == nil {
		c.mu.Lock()
		c.mode = undecided
		c.mu.Unlock()
		return false
	}
	return true
}

// forwardDatabase forwards bytes of the client. It returns false if the connection is opaque.
func (u *up) forwardDatabase() bool {
	c, b := u.c, u.buf
	u.clearDeadline()
	c.mu.Lock()
	c.db.FromClient(b.Bytes())
	if c.end.done() {
		if c.end.on == onIdle && c.db.isBusyLocked() {
			c.raceLocked()
		}
		c.mu.Unlock()
		b.R = b.W
		return true
	}
	c.arriving, c.awaitsFirst = false, false
	c.growsLocked()
	followed := c.db.recountLocked()
	c.mu.Unlock()
	u.carried += uint64(b.W - b.R)
	c.db.amu.Lock()
	if err := c.app.Send(b.Bytes(), false); err != nil {
		c.app.Shut() // its end decides how to continue
	}
	c.db.amu.Unlock()
	b.R = b.W
	if !followed {
		u.mode = opaque
	}
	return followed
}

// passDatabase passes on bytes of the app. It returns false if the connection has ended or is opaque.
func (d *down) passDatabase() bool {
	c, b := d.c, d.buf
	c.wmu.Lock()
	c.mu.Lock()
	if c.end.done() {
		c.mu.Unlock()
		c.wmu.Unlock()
		b.R = b.W
		return true
	}
	c.db.FromServer(b.Bytes())
	// With the server's latest message it ends if nothing is in progress and the client cannot have sent its next
	// request before it has read this. One that has only logged in has a moment to do so.
	ends := (c.p.closing.holds() || c.restart.leaves.Load()) && c.db.Idle() && c.db.HadRequest() &&
		c.client.Unread() == 0
	awaits := !ends && c.busy && c.db.Idle() // its first request
	followed := true
	if ends {
		c.endLocked(onAnswered)
	} else {
		followed = c.db.recountLocked()
	}
	c.mu.Unlock()
	d.carried += uint64(b.W - b.R)
	err := c.client.Send(b.Bytes(), ends && len(c.db.lastWord) > 0)
	b.R = b.W
	if ends {
		c.db.sayLast()
		c.carryOut(&claim{}, 0)
	} else if c.lastWordRequested.Load() {
		c.sendLastWord(false)
	}
	c.wmu.Unlock()
	c.tryLastWord()
	if awaits && c.p.closing.holds() {
		c.p.endLater(c, firstRequestTime, unreadTime)
	}
	if !followed {
		d.mode = opaque
	}
	return followed && err == nil
}

// sayLast sends the last messages to either side, of a connection that has ended. wmu is held.
func (db *database) sayLast() {
	c := db.c
	c.mu.Lock()
	app, toClient := c.app, db.BetweenReplies()
	c.mu.Unlock()
	if toClient && len(db.lastWord) > 0 {
		_ = c.client.SetWriteDeadline(time.Now().Add(stuckTime))
		_ = c.client.Send(db.lastWord, true)
	}
	if app != nil && len(db.leave) > 0 {
		_ = app.SetWriteDeadline(time.Now().Add(stuckTime))
		db.amu.Lock()
		_ = app.Send(db.leave, false)
		db.amu.Unlock()
	}
}

// endBusy ends the connection within a transaction or a command, at the last call, as soon as its protocol allows. wmu
// is held. A server that reads a FIN first answers the commands before it: an element that a blocking command of
// Redis has taken is not lost.
func (db *database) endBusy() {
	c := db.c
	c.mu.Lock()
	hasEnded := c.end.done() || c.mode != modeDatabase
	switch {
	case hasEnded:
	case len(db.lastWord) == 0:
		if !db.halts {
			db.halts = true
			_ = c.app.CloseWrite()
		}
	case db.BetweenReplies():
		c.endLocked(onLastCall)
		if c.end.word != nil {
			c.end.word.ending = db.code
		}
		c.mu.Unlock()
		_ = c.client.SetWriteDeadline(time.Now().Add(stuckTime))
		_ = c.client.Send(db.lastWord, true)
		c.carryOut(&claim{}, 0)
		return
	}
	c.mu.Unlock()
}
