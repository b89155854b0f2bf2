// Package postgres follows a connection of PostgreSQL's frontend/backend protocol, version 3, by the types and lengths
// of its messages (PostgreSQL documentation, 55.2 message flow, 55.7 message formats). It holds no bytes of them.
package postgres

import (
	"encoding/binary"
	"strings"
)

// Dialogue is the state of a connection by its messages: whether it is between two transactions. The zero value is a
// connection before its first byte. What it does not understand makes it lost for good: encryption, other versions,
// cancel requests, and COPY FROM STDIN of the extended protocol, whose server ignores Sync messages.
type Dialogue struct {
	client, server message
	step           step
	status         byte   // in the latest ReadyForQuery; 0 before the first
	owed           uint32 // ReadyForQuery messages that the server has yet to send
	unsynced       bool   // the client has sent messages of the extended protocol without their Sync
	simple         bool   // the client's latest request for a ReadyForQuery was no Sync
	hadRequest     bool   // it has sent a query
	lost           bool
}

// step is how far the start of the connection is.
type step uint8

const (
	starting  step = iota // the client's next message has no type
	answering             // the server's next byte answers a request for encryption
	running
)

// message is the message of one side that is passing.
type message struct {
	header [8]byte // as much of it as has come
	n      uint8   // bytes of header
	left   uint32  // bytes of the body still to come
}

const (
	typedHeader   = 5 // type, length
	startupHeader = 8 // length, code

	maxStartup = 10000   // MAX_STARTUP_PACKET_LENGTH
	maxMessage = 1 << 30 // PQ_LARGE_MESSAGE_LIMIT

	version3   = 3
	codeSSL    = 80877103
	codeGSSENC = 80877104
	codeCancel = 80877102
)

const (
	clientTypes = "QFSPBDECHdcfpX"
	serverTypes = "RKSZTDCIEN123AGHWVctdcnsv"
)

var (
	// AdminShutdown is a server's message before it ends a connection between two messages: ErrorResponse, SQLSTATE
	// 57P01 (55.2.4: "the frontend should be prepared to handle" it at any time).
	AdminShutdown = []byte("E\x00\x00\x00\x4fSFATAL\x00VFATAL\x00C57P01\x00" +
		"Mterminating connection due to administrator command\x00\x00")

	// Terminate is the client's last message.
	Terminate = []byte{'X', 0, 0, 0, 4}
)

// IsStartup reports whether these can be the first bytes of a client.
func IsStartup(p []byte) bool { return len(p) >= startupHeader && isStartup(p) }

func isStartup(header []byte) bool {
	length, code := binary.BigEndian.Uint32(header), binary.BigEndian.Uint32(header[4:])
	if code == codeSSL || code == codeGSSENC {
		return length == startupHeader
	}
	return length >= startupHeader && length <= maxStartup && (code>>16 == version3 || code == codeCancel)
}

// take takes bytes of the message, and returns how many. header is called when its header is complete.
func (m *message) take(p []byte, length uint8, header func(*message)) (n int) {
	if m.left > 0 {
		n = min(len(p), int(m.left))
		m.left -= uint32(n)
	} else {
		n = copy(m.header[m.n:length], p)
		if m.n += uint8(n); m.n < length {
			return n
		}
		header(m)
	}
	if m.left == 0 { // the message is complete
		m.n = 0
	}
	return n
}

// FromClient takes the next bytes of the client.
func (d *Dialogue) FromClient(p []byte) {
	for len(p) > 0 && !d.lost {
		switch d.step {
		case starting:
			p = p[d.client.take(p, startupHeader, d.startup):]
		case answering: // it has to await the answer
			d.lost = true
		case running:
			p = p[d.client.take(p, typedHeader, d.request):]
		}
	}
}

// startup is a message of the client without a type.
func (d *Dialogue) startup(m *message) {
	if !isStartup(m.header[:]) {
		d.lost = true
		return
	}
	m.left = binary.BigEndian.Uint32(m.header[:]) - startupHeader
	switch binary.BigEndian.Uint32(m.header[4:]) {
	case codeSSL, codeGSSENC:
		d.step = answering
	case codeCancel:
		d.lost = true
	default:
		d.step, d.owed = running, 1
	}
}

// typed reads a header with a type.
func (d *Dialogue) typed(m *message, types string) {
	length := binary.BigEndian.Uint32(m.header[1:])
	if length < 4 || length > maxMessage || !strings.Contains(types, string(rune(m.header[0]))) {
		d.lost = true
		return
	}
	m.left = length - 4
}

// request is a message of the client. Query, FunctionCall and Sync are each answered by a ReadyForQuery; the other
// messages of the extended protocol belong to a Sync that follows them (55.2.3).
func (d *Dialogue) request(m *message) {
	d.typed(m, clientTypes)
	switch m.header[0] {
	case 'Q', 'F':
		d.owed++
		d.simple, d.hadRequest = true, true
	case 'S':
		d.owed++
		d.simple, d.unsynced = false, false
	case 'P', 'B', 'D', 'E', 'C', 'H':
		d.unsynced, d.hadRequest = true, true
	}
}

// FromServer takes the next bytes of the server.
func (d *Dialogue) FromServer(p []byte) {
	for len(p) > 0 && !d.lost {
		switch {
		case d.step == answering && p[0] == 'N': // no encryption: the client starts without, or ends the connection
			d.step = starting
			p = p[1:]
		case d.step != running:
			d.lost = true
		case d.server.left == 1 && d.server.header[0] == 'Z':
			d.lost = d.owed == 0
			d.owed, d.status = max(d.owed, 1)-1, p[0] // of the transaction
			fallthrough
		default:
			p = p[d.server.take(p, typedHeader, d.response):]
		}
	}
}

func (d *Dialogue) response(m *message) {
	d.typed(m, serverTypes)
	switch m.header[0] {
	case 'Z':
		d.lost = d.lost || m.left != 1
	case 'G', 'W': // the server is about to ignore a Sync
		d.lost = d.lost || !d.simple || d.owed > 1
	}
}

// Idle reports whether nothing is in progress: the latest ReadyForQuery has status I (no transaction), and the client
// has sent nothing since. A connection before its first byte is idle.
func (d *Dialogue) Idle() bool {
	idle := d.step == starting && d.status == 0 || d.step == running && d.status == 'I'
	return idle && !d.lost && d.owed == 0 && !d.unsynced && d.client.n == 0 && d.server.n == 0
}

// HadRequest reports whether the client has sent a query since its login.
func (d *Dialogue) HadRequest() bool { return d.hadRequest }

// BetweenReplies reports whether a message may follow the server's last byte.
func (d *Dialogue) BetweenReplies() bool { return d.step == running && !d.lost && d.server.n == 0 }

// Lost reports whether the connection is no longer followed.
func (d *Dialogue) Lost() bool { return d.lost }
