package resp

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// command is a command as client libraries send it.
func command(words ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(words))
	for _, w := range words {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(w), w)
	}
	return b.String()
}

// sent is bytes of one side.
type sent struct {
	client bool
	bytes  string
}

func c(words ...string) sent { return sent{true, command(words...)} }
func raw(bytes string) sent  { return sent{true, bytes} }
func s(bytes string) sent    { return sent{false, bytes} }

func TestIdleBetweenCommands(t *testing.T) {
	for _, tt := range []struct {
		name       string
		sent       []sent
		idle, lost bool
	}{
		{name: "nothing", idle: true},
		{name: "a command", sent: []sent{c("GET", "k")}},
		{name: "half a command", sent: []sent{raw(command("GET", "k")[:9])}},
		{name: "answered", sent: []sent{c("GET", "k"), s("$1\r\nv\r\n")}, idle: true},
		{name: "half an answer", sent: []sent{c("GET", "k"), s("$5\r\nv\r\n")}},
		{name: "a part of its last line end", sent: []sent{c("GET", "k"), s("$1\r\nv\r")}},
		{name: "no value", sent: []sent{c("GET", "k"), s("$-1\r\n")}, idle: true},
		{name: "an error", sent: []sent{c("GET", "k"), s("-ERR no\r\n")}, idle: true},
		{name: "an empty value", sent: []sent{c("GET", ""), s("$0\r\n\r\n")}, idle: true},
		{name: "a value of lines", sent: []sent{c("SET", "k", "*1\r\n$5\r\nMULTI\r\n"), s("+OK\r\n")}, idle: true},
		{name: "an array", sent: []sent{c("MGET", "a", "b"), s("*2\r\n$1\r\na\r\n$-1\r\n")}, idle: true},
		{name: "an array within an array", sent: []sent{c("X"), s("*2\r\n*2\r\n:1\r\n:2\r\n*1\r\n*0\r\n")}, idle: true},
		{name: "a part of it", sent: []sent{c("X"), s("*2\r\n*2\r\n:1\r\n:2\r\n*1\r\n")}},
		{name: "no array", sent: []sent{c("BLPOP", "q", "1"), s("*-1\r\n")}, idle: true},
		{name: "pipelined", sent: []sent{c("GET", "a"), c("GET", "b"), s("$-1\r\n")}},
		{name: "pipelined, answered", sent: []sent{c("GET", "a"), c("GET", "b"), s("$-1\r\n:1\r\n")}, idle: true},
		{name: "blocking", sent: []sent{c("BLPOP", "q", "0")}},
		{name: "within MULTI", sent: []sent{c("MULTI"), s("+OK\r\n"), c("SET", "k", "v"), s("+QUEUED\r\n")}},
		{name: "in lower case", sent: []sent{c("multi"), s("+OK\r\n")}},
		{name: "EXEC", sent: []sent{c("MULTI"), s("+OK\r\n"), c("SET", "k", "v"), s("+QUEUED\r\n"), c("EXEC")}},
		{name: "EXEC, answered", sent: []sent{c("MULTI"), s("+OK\r\n"), c("SET", "k", "v"), s("+QUEUED\r\n"), c("EXEC"), s("*1\r\n+OK\r\n")}, idle: true},
		{name: "DISCARD", sent: []sent{c("MULTI"), s("+OK\r\n"), c("DISCARD"), s("+OK\r\n")}, idle: true},
		{name: "WATCH", sent: []sent{c("WATCH", "k"), s("+OK\r\n")}, idle: true},
		{name: "inline", sent: []sent{raw("\r\n\nPING\r\n")}},
		{name: "inline, in part", sent: []sent{raw("PIN")}},
		{name: "inline, answered", sent: []sent{raw("PING\r\n"), s("+PONG\r\n")}, idle: true},
		{name: "inline MULTI", sent: []sent{raw("multi\n"), s("+OK\r\n")}},
		{name: "empty array", sent: []sent{raw("*0\r\n*-1\r\n")}, idle: true},
		{name: "RESP3", sent: []sent{c("HELLO", "3"), s("%2\r\n+a\r\n:1\r\n+b\r\n*0\r\n")}, idle: true},
		{name: "RESP3's types", sent: []sent{c("X"), s("~8\r\n_\r\n,1.5\r\n#t\r\n(123\r\n!3\r\nERR\r\n=5\r\ntxt:x\r\n>1\r\n+x\r\n|1\r\n+a\r\n+b\r\n:1\r\n")}, idle: true},
		{name: "attributes", sent: []sent{c("X"), s("|1\r\n+ttl\r\n:1\r\n")}},
		{name: "attributes, and the reply", sent: []sent{c("X"), s("|1\r\n+ttl\r\n:1\r\n$-1\r\n")}, idle: true},
		{name: "a push before a reply", sent: []sent{c("GET", "k"), s(">2\r\n+invalidate\r\n*1\r\n$1\r\nk\r\n")}},
		{name: "a push on an idle connection", sent: []sent{s(">2\r\n+invalidate\r\n_\r\n")}, idle: true},
		{name: "subscribed", sent: []sent{c("SUBSCRIBE", "a", "b"), s("*3\r\n+subscribe\r\n+a\r\n:1\r\n*3\r\n+subscribe\r\n+b\r\n:2\r\n")}, idle: true},
		{name: "a message in part", sent: []sent{c("SUBSCRIBE", "a"), s("*3\r\n+message\r\n+a\r\n$10\r\n")}},
		{name: "subscribed with RESP3", sent: []sent{c("HELLO", "3"), s("%0\r\n"), c("SUBSCRIBE", "a"), s(">3\r\n+subscribe\r\n+a\r\n:1\r\n"), c("GET", "k")}},
		{name: "no longer, with RESP3", sent: []sent{c("HELLO", "3"), s("%0\r\n"), c("SUBSCRIBE", "a"), c("UNSUBSCRIBE"), s(">3\r\n+subscribe\r\n+a\r\n:1\r\n"), c("GET", "k"), s(":1\r\n")}, idle: true},
		{name: "no longer, with RESP2", sent: []sent{c("SUBSCRIBE", "a"), c("UNSUBSCRIBE")}, lost: true},
		{name: "a subscription refused", sent: []sent{c("SUBSCRIBE", "a"), c("GET", "k"), s("-NOPERM\r\n")}, lost: true},
		{name: "a subscription within MULTI", sent: []sent{c("MULTI"), c("SUBSCRIBE", "a")}, lost: true},
		{name: "MONITOR", sent: []sent{c("MONITOR"), s("+OK\r\n+1 [0 lua] \"get\"\r\n")}, idle: true},
		{name: "CLIENT REPLY", sent: []sent{c("CLIENT", "reply", "OFF")}, lost: true},
		{name: "CLIENT SETINFO", sent: []sent{c("CLIENT", "SETINFO", "LIB-NAME", "x"), s("+OK\r\n")}, idle: true},
		{name: "replication", sent: []sent{c("PSYNC", "?", "-1")}, lost: true},
		{name: "a reply too many", sent: []sent{c("GET", "k"), s("$-1\r\n$-1\r\n")}, lost: true},
		{name: "no value at all", sent: []sent{c("GET", "k"), s("HTTP/1.1 200 OK\r\n")}, lost: true},
		{name: "no length", sent: []sent{c("GET", "k"), s("$x\r\n")}, lost: true},
		{name: "a streamed string", sent: []sent{c("GET", "k"), s("$?\r\n")}, lost: true},
		{name: "a length of 10 GB", sent: []sent{c("GET", "k"), s("$10000000000\r\n")}, lost: true},
		{name: "no command", sent: []sent{raw("*1\r\n:1\r\n")}, lost: true},
	} {
		for _, step := range []int{1, 3, 1000} {
			var d Dialogue
			for _, one := range tt.sent {
				feed(&d, one.client, []byte(one.bytes), step)
			}
			if d.Idle() != tt.idle || d.Lost() != tt.lost {
				t.Errorf("%s, in steps of %d: idle %v, lost %v: %+v", tt.name, step, d.Idle(), d.Lost(), d)
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

func TestHadRequest(t *testing.T) {
	var d Dialogue
	feed(&d, true, []byte(command("HELLO", "3")+command("CLIENT", "SETINFO", "LIB-VER", "1")), 5)
	if d.HadRequest() {
		t.Error("a login counts as a command")
	}
	if feed(&d, true, []byte(command("GET", "k")), 5); !d.HadRequest() {
		t.Error("a command does not count")
	}
}

func TestIsCommand(t *testing.T) {
	for text, want := range map[string]bool{
		"*1\r\n$4\r\nPING\r\n": true, "*12\r\n$": true,
		"*": false, "*1": false, "*1\r\n": false, "*\r\n$": false, "*x\r\n$": false, "PING\r\n": false, "\n": false,
		"GET / HTTP/1.1\r\n": false,
	} {
		if got := IsCommand([]byte(text)); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// Whatever the bytes and their pieces, the dialogue is the same as in one piece, and never idle with a command unanswered.
func FuzzDialogue(f *testing.F) {
	f.Add([]byte(command("MULTI")), []byte("+OK\r\n%1\r\n+a\r\n*-1\r\n"), []byte(command("HELLO", "3")+"PING\r\n"), uint8(3))
	f.Add([]byte(command("SUBSCRIBE", "a")), []byte(">3\r\n$1\r\na\r\n_\r\n|1\r\n:1\r\n:2\r\n$-1\r\n"), []byte(command("client", "reply", "off")), uint8(1))
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
		if whole != pieces && !(whole.Lost() && pieces.Lost()) {
			t.Fatalf("whole %+v, in pieces %+v", whole, pieces)
		}
		if whole.Lost() && whole.Idle() {
			t.Fatalf("lost and idle: %+v", whole)
		}
		if wasIdle := whole.Idle(); wasIdle {
			if feed(&whole, true, []byte(command("GET", "k")), 1<<20); whole.Idle() {
				t.Fatalf("idle with a command unanswered: %+v", whole)
			}
		}
	})
}
