package postgres

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"
)

// typed is a message with a type, startup one without.
func typed(kind byte, body string) string {
	return string(binary.BigEndian.AppendUint32([]byte{kind}, uint32(4+len(body)))) + body
}

func startup(code uint32, body string) string {
	b := binary.BigEndian.AppendUint32(nil, uint32(8+len(body)))
	return string(binary.BigEndian.AppendUint32(b, code)) + body
}

const protocol3 = 3 << 16

var (
	login   = startup(protocol3, "user\x00app\x00\x00")
	welcome = typed('R', "\x00\x00\x00\x00") + typed('S', "server_version\x0015\x00") + typed('K', "12345678") + ready('I')
	parse   = typed('P', "\x00SELECT 1\x00\x00\x00") + typed('B', "\x00\x00\x00\x00\x00\x00\x00\x00") + typed('E', "\x00\x00\x00\x00\x00")
	row     = typed('D', "\x00\x01\x00\x00\x00\x01x")
)

func ready(status byte) string { return typed('Z', string(status)) }

func query(text string) string { return typed('Q', text+"\x00") }

// sent is bytes of one side.
type sent struct {
	client bool
	bytes  string
}

func c(bytes string) sent { return sent{true, bytes} }
func s(bytes string) sent { return sent{false, bytes} }

func TestIdleBetweenTransactions(t *testing.T) {
	begun := []sent{c(login), s(welcome)}
	for _, tt := range []struct {
		name       string
		sent       []sent
		idle, lost bool
	}{
		{name: "nothing", idle: true},
		{name: "half a startup message", sent: []sent{c(login[:3])}},
		{name: "within the login", sent: []sent{c(login), s(typed('R', "\x00\x00\x00\x0aSCRAM-SHA-256\x00\x00")), c(typed('p', "SCRAM"))}},
		{name: "after the login", sent: begun, idle: true},
		{name: "a query", sent: append(begun, c(query("SELECT 1")))},
		{name: "half a query", sent: append(begun, c(query("SELECT 1")[:7]))},
		{name: "its rows", sent: append(begun, c(query("SELECT 1")), s(typed('T', "\x00\x00")+row+typed('C', "SELECT 1\x00")))},
		{name: "answered", sent: append(begun, c(query("SELECT 1")), s(typed('T', "\x00\x00")+row+typed('C', "SELECT 1\x00")+ready('I'))), idle: true},
		{name: "a part of the status", sent: append(begun, c(query("SELECT 1")), s(ready('I')[:5]))},
		{name: "within a transaction", sent: append(begun, c(query("BEGIN")), s(typed('C', "BEGIN\x00")+ready('T')))},
		{name: "within a failed one", sent: append(begun, c(query("BEGIN")), s(ready('T')), c(query("oops")), s(typed('E', "SERROR\x00\x00")+ready('E')))},
		{name: "after it", sent: append(begun, c(query("BEGIN")), s(ready('T')), c(query("COMMIT")), s(ready('I'))), idle: true},
		{name: "extended, without Sync", sent: append(begun, c(parse))},
		{name: "extended, flushed", sent: append(begun, c(parse+typed('H', "")), s(typed('1', "")+typed('2', "")))},
		{name: "extended, with Sync", sent: append(begun, c(parse+typed('S', "")))},
		{name: "extended, answered", sent: append(begun, c(parse+typed('S', "")), s(typed('1', "")+row+ready('I'))), idle: true},
		{name: "pipelined, one of two answered", sent: append(begun, c(parse+typed('S', "")+parse+typed('S', "")), s(ready('I')))},
		{name: "pipelined, the next without Sync", sent: append(begun, c(parse+typed('S', "")+parse), s(ready('I')))},
		{name: "pipelined, answered", sent: append(begun, c(parse+typed('S', "")+query("x")), s(ready('I')+ready('I'))), idle: true},
		{name: "COPY to the server", sent: append(begun, c(query("COPY t FROM STDIN")), s(typed('G', "\x00\x00\x00")), c(typed('d', "1\n")+typed('c', "")))},
		{name: "COPY to the server, complete", sent: append(begun, c(query("COPY t FROM STDIN")), s(typed('G', "\x00\x00\x00")), c(typed('d', "1\n")+typed('c', "")), s(typed('C', "COPY 1\x00")+ready('I'))), idle: true},
		{name: "COPY that failed", sent: append(begun, c(query("COPY t FROM STDIN")), s(typed('G', "\x00\x00\x00")+typed('E', "SERROR\x00\x00")+ready('I')), c(typed('d', "1\n")+typed('f', "\x00"))), idle: true},
		{name: "COPY by the extended protocol", sent: append(begun, c(parse+typed('S', "")), s(typed('G', "\x00\x00\x00"))), lost: true},
		{name: "COPY from the server", sent: append(begun, c(query("COPY t TO STDOUT")), s(typed('H', "\x00\x00\x00")+typed('d', "1\n")+typed('c', "")))},
		{name: "replication", sent: append(begun, c(query("START_REPLICATION 0/0")), s(typed('W', "\x00\x00\x00")+typed('d', "w")), c(typed('d', "r")))},
		{name: "a notification", sent: append(begun, s(typed('A', "\x00\x00\x00\x01c\x00p\x00"))), idle: true},
		{name: "half a notification", sent: append(begun, s(typed('A', "\x00\x00\x00\x01c\x00p\x00")[:8]))},
		{name: "Terminate", sent: append(begun, c(typed('X', ""))), idle: true},
		{name: "encryption requested", sent: []sent{c(startup(codeSSL, ""))}},
		{name: "encryption refused", sent: []sent{c(startup(codeGSSENC, "")), s("N"), c(startup(codeSSL, "")), s("N"), c(login), s(welcome)}, idle: true},
		{name: "encrypted", sent: []sent{c(startup(codeSSL, "")), s("S")}, lost: true},
		{name: "sent before the answer", sent: []sent{c(startup(codeSSL, "") + login)}, lost: true},
		{name: "cancel request", sent: []sent{c(startup(codeCancel, "12345678"))}, lost: true},
		{name: "version 2", sent: []sent{c(startup(2<<16, "user\x00"))}, lost: true},
		{name: "version 3.2", sent: []sent{c(startup(protocol3+2, "user\x00")), s(welcome)}, idle: true},
		{name: "a ReadyForQuery too many", sent: append(begun, s(ready('I'))), lost: true},
		{name: "a status of two bytes", sent: append(begun, c(query("x")), s(typed('Z', "II"))), lost: true},
		{name: "an unknown message of the client", sent: append(begun, c(typed('?', ""))), lost: true},
		{name: "an unknown message of the server", sent: append(begun, s(typed('?', ""))), lost: true},
		{name: "a length below 4", sent: append(begun, c("Q\x00\x00\x00\x03")), lost: true},
		{name: "a length of 2 GB", sent: append(begun, s("D\x7f\xff\xff\xff")), lost: true},
	} {
		for _, step := range []int{1, 3, 1000} {
			var d Dialogue
			for _, one := range tt.sent {
				feed(&d, one.client, []byte(one.bytes), step)
			}
			if d.Idle() != tt.idle || d.Lost() != tt.lost {
				t.Errorf("%s, in steps of %d: idle %v, lost %v", tt.name, step, d.Idle(), d.Lost())
			}
		}
	}
}

func feed(d *Dialogue, client bool, p []byte, step int) {
	take := d.FromServer
	if client {
		take = d.FromClient
	}
	for part := range slices.Chunk(p, step) {
		take(part)
	}
}

func TestIsStartup(t *testing.T) {
	for _, tt := range []struct {
		bytes string
		want  bool
	}{
		{login, true},
		{startup(codeSSL, ""), true},
		{startup(codeGSSENC, ""), true},
		{startup(codeCancel, "12345678"), true},
		{startup(protocol3, "")[:7], false},
		{startup(2<<16, ""), false},
		{startup(codeSSL, "more"), false},
		{"GET / HTTP/1.1\r\n\r\n", false},
		{"\x00\x00\x40\x00\x00\x03\x00\x00", false},
	} {
		if got := IsStartup([]byte(tt.bytes)); got != tt.want {
			t.Errorf("%q: %v", tt.bytes, got)
		}
	}
}

func TestMessagesOfOurs(t *testing.T) {
	var d Dialogue
	feed(&d, true, []byte(login+query("BEGIN")), 1000)
	feed(&d, false, []byte(welcome+ready('T')), 1000)
	if feed(&d, false, AdminShutdown, 1000); d.Lost() || !d.BetweenReplies() || !bytes.Contains(AdminShutdown, []byte("C57P01\x00")) {
		t.Errorf("%q is no message", AdminShutdown)
	}
	if feed(&d, true, Terminate, 1000); d.Lost() {
		t.Errorf("%q is no message", Terminate)
	}
}

// Whatever the bytes and their pieces, the dialogue is the same as in one piece, and never idle with a request unanswered.
func FuzzDialogue(f *testing.F) {
	f.Add([]byte(login), []byte(welcome+ready('I')), []byte(query("SELECT 1")+parse+typed('S', "")), uint8(3))
	f.Add([]byte(startup(codeSSL, "")), []byte("N"), []byte(login), uint8(1))
	f.Fuzz(func(t *testing.T, first, server, second []byte, step uint8) {
		var whole, pieces Dialogue
		for _, d := range []*Dialogue{&whole, &pieces} {
			n := 1 << 20
			if d == &pieces {
				n = int(step) + 1
			}
			feed(d, true, first, n)
			feed(d, false, server, n)
			feed(d, true, second, n)
		}
		if whole.Lost() != pieces.Lost() || whole.Idle() != pieces.Idle() {
			t.Fatalf("whole %+v, in pieces %+v", whole, pieces)
		}
		if whole.Lost() && whole.Idle() {
			t.Fatalf("lost and idle: %+v", whole)
		}
		if feed(&whole, true, []byte(query("x")), 1<<20); whole.Idle() && whole.step == running {
			t.Fatalf("idle with a query unanswered: %+v", whole)
		}
	})
}
