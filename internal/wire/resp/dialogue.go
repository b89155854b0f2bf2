// Package resp follows a connection of Redis by the values of its protocol, RESP2 and RESP3
// (https://redis.io/docs/latest/develop/reference/protocol-spec/). It holds no bytes of them but a command's name.
package resp

import "bytes"

// Dialogue is the state of a connection by its commands and replies: whether a reply is due, or a transaction has
// begun. The zero value is a connection before its first byte. What it cannot count makes it lost for good:
// replication, CLIENT REPLY, and the end of a subscription with RESP2, which has a reply for each channel.
//
// A command that blocks has no reply yet, so it is in progress. WATCH holds nothing: a client whose connection ends
// before its EXEC has to begin again. A subscriber is idle between two messages.
type Dialogue struct {
	command, reply value
	inline         bool // the command is a line without lengths
	args           int64
	words          [24]byte // the beginning of the command's first two words
	n              uint8    // bytes of words
	owed           uint32   // replies that the server has yet to send
	multi          bool     // within MULTI
	streams        bool     // the server sends values without commands: a subscription or MONITOR
	resp3          bool
	hadRequest     bool
	lost           bool
}

// IsCommand reports whether these can be the first bytes of a client: an array of strings, as client libraries send.
// Others begin an inline command, which any protocol of lines could be.
func IsCommand(p []byte) bool {
	digits := bytes.TrimLeft(p[min(1, len(p)):], "0123456789")
	return p[0] == '*' && len(digits) < len(p)-1 && bytes.HasPrefix(digits, []byte("\r\n$"))
}

// FromClient takes the next bytes of the client.
func (d *Dialogue) FromClient(p []byte) {
	for len(p) > 0 && !d.lost {
		switch {
		case d.inline || !d.command.open() && p[0] != '*':
			p = d.line(p)
		default:
			p = d.array(p)
		}
	}
}

// line takes bytes of an inline command. Empty lines are none.
func (d *Dialogue) line(p []byte) (rest []byte) {
	d.inline = true
	end := bytes.IndexByte(p, '\n')
	if end < 0 {
		d.keep(p)
		return nil
	}
	d.keep(p[:end])
	d.inline = false
	if words := bytes.TrimSpace(d.words[:d.n]); len(words) > 0 {
		d.begins(words)
	}
	d.n = 0
	return p[end+1:]
}

// array takes bytes of a command that is an array of strings.
func (d *Dialogue) array(p []byte) (rest []byte) {
	v := &d.command
	if v.skip > lineEnd && d.args < 2 {
		d.keep(p[:min(int64(len(p)), v.skip-lineEnd)])
	}
	within := v.skip > 0
	isArgument := !v.open() || within || v.kind != 0 || p[0] == '$'
	n := v.take(p)
	if n < 0 || !isArgument {
		d.lost = true
		return nil
	}
	if within && v.skip == 0 { // the end of an argument
		d.args++
		d.keep([]byte{' '})
	}
	if !v.open() {
		if d.args > 0 {
			d.begins(bytes.TrimSpace(d.words[:d.n]))
		}
		d.args, d.n = 0, 0
	}
	return p[n:]
}

func (d *Dialogue) keep(p []byte) {
	if d.args < 2 {
		d.n += uint8(copy(d.words[d.n:], p))
	}
}

// begins is a command that has come. Names may be in either case.
func (d *Dialogue) begins(words []byte) {
	for i, b := range words {
		if b >= 'a' && b <= 'z' {
			words[i] = b - ('a' - 'A')
		}
	}
	name, rest, _ := bytes.Cut(words, []byte(" "))
	replies := uint32(1)
	prepares := false // the connection, as clients do at first
	switch string(name) {
	case "HELLO", "AUTH", "SELECT", "READONLY", "COMMAND", "PING":
		prepares = true
	case "CLIENT":
		prepares = true
		d.lost = bytes.HasPrefix(rest, []byte("REPLY"))
	case "MULTI":
		d.multi = true
	case "EXEC", "DISCARD", "RESET":
		d.multi = false
	case "MONITOR":
		d.streams = true
	case "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE": // answered like messages
		d.lost = d.multi
		d.streams, replies = true, 0
	case "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE":
		d.lost = d.multi || !d.resp3
		replies = 0
	case "SYNC", "PSYNC", "REPLCONF":
		d.lost = true
	}
	d.owed += replies
	d.hadRequest = d.hadRequest || !prepares
}

// FromServer takes the next bytes of the server.
func (d *Dialogue) FromServer(p []byte) {
	for len(p) > 0 && !d.lost {
		n := d.reply.take(p)
		if n < 0 {
			d.lost = true
			return
		}
		p = p[n:]
		if !d.reply.open() {
			d.replied(d.reply.first)
		}
	}
}

// replied is a whole value from the server.
func (d *Dialogue) replied(kind byte) {
	switch {
	case kind == '>': // a push, which answers nothing
		d.resp3 = true
		return
	case kind == '%':
		d.resp3 = true
	}
	switch {
	case d.streams && kind == '-': // it may answer a SUBSCRIBE
		d.lost = true
	case d.owed > 0:
		d.owed--
	case !d.streams:
		d.lost = true
	}
}

// Idle reports whether nothing is in progress: no command, no reply, no MULTI.
func (d *Dialogue) Idle() bool {
	return !d.lost && d.owed == 0 && !d.multi && !d.inline && !d.command.open() && !d.reply.open()
}

// HadRequest reports whether the client has sent a command that does not only prepare the connection.
func (d *Dialogue) HadRequest() bool { return d.hadRequest }

// BetweenReplies reports whether no reply has been sent in part.
func (d *Dialogue) BetweenReplies() bool { return !d.lost && !d.reply.open() }

// Lost reports whether the connection is no longer followed.
func (d *Dialogue) Lost() bool { return d.lost }
