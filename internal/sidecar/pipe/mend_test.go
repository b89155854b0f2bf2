package pipe

import (
	"io"
	"net"
	"strings"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/counters"
)

// What clients accept of an app, the pipe passes on, so that they cannot differ about its end. The rest gets a 502 at
// once, although the app keeps its connection, and is counted.
func TestLenientResponses(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n"
	for _, tt := range []struct {
		name, answer string
		want         string // what follows the status line; "" for a 502
		reason       string
	}{
		{"LF", "HTTP/1.1 200 OK\nA: b\nContent-Length: 2\n\nok", "A: b\r\ncontent-length: 2\r\n\r\nok", ""},
		{"LF at the end", ok + "Content-Length: 2\n\r\nok", "content-length: 2\r\n\r\nok", ""},
		{"equal lengths", ok + "Content-Length: 2\r\nContent-Length: 2\r\n\r\nok", "content-length: 2\r\n\r\nok", ""},
		{"a list of equal lengths", ok + "Content-Length: 2, 2\r\n\r\nok", "content-length: 2\r\n\r\nok", ""},
		{"length and chunked", ok + "Content-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", "transfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", ""},
		{"chunked twice", ok + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", "transfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", ""},
		{"folded", ok + "A: b\r\n\t c\r\nContent-Length: 2\r\n\r\nok", "A: b c\r\ncontent-length: 2\r\n\r\nok", ""},
		{"a folded length", ok + "Content-Length:\r\n 2\r\n\r\nok", "content-length: 2\r\n\r\nok", ""},
		{"space before a colon", ok + "Content-Length : 2\r\n\r\nok", "content-length: 2\r\n\r\nok", ""},

		{"identity", ok + "Transfer-Encoding: identity\r\nContent-Length: 2\r\n\r\nok", "content-length: 2\r\n\r\nok", ""},
		{"a name of two words", ok + "A b(c): d\r\nContent-Length: 2\r\n\r\nok", "A b(c): d\r\nContent-Length: 2\r\n\r\nok", ""},
		{"a long head", ok + "A: " + strings.Repeat("b", maxAppBlock-100) + "\r\nContent-Length: 2\r\n\r\nok", "A: " + strings.Repeat("b", maxAppBlock-100) + "\r\nContent-Length: 2\r\n\r\nok", ""},

		{"a control character in a name", ok + "A\x01b: c\r\nContent-Length: 2\r\n\r\nok", "", "syntax"},
		{"two lengths", ok + "Content-Length: 2\r\nContent-Length: 3\r\n\r\nok", "", "framing"},
		{"length and chunked in HTTP/1.0", "HTTP/1.0 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\nok", "", "framing"},
		{"chunked, then another", ok + "Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip\r\n\r\nok", "", "framing"},
		{"length of letters", ok + "Content-Length: two\r\n\r\nok", "", "syntax"},
		{"first line folded", ok + " A: b\r\nContent-Length: 2\r\n\r\nok", "", "syntax"},
		{"no colon", ok + "nonsense\r\nContent-Length: 2\r\n\r\nok", "", "syntax"},
		{"bare CR", ok + "A: b\rContent-Length: 3\r\nContent-Length: 2\r\n\r\nok", "", "syntax"},
		{"no HTTP", "220 hello\r\n\r\n", "", "syntax"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, c := startClient(t, answering(t, tt.answer), HTTP)
			c.send(get("/"))
			if tt.want == "" {
				if got := c.response("GET"); got.StatusCode != 502 {
					t.Errorf("status %d", got.StatusCode)
				}
				for reason, n := range p.Stats().Invalid {
					if want := counters.Invalid(reason).String() == tt.reason; (n == 1) != want {
						t.Errorf("%s is counted %d times", counters.Invalid(reason).String(), n)
					}
				}
				return
			}
			c.expect(ok + tt.want)
			c.send(get("/"))
			c.expect(ok + tt.want)
		})
	}
}

// The same for an interim response, a switch of protocols, and in a drain.
func TestLenientOtherResponses(t *testing.T) {
	_, c := startClient(t, answering(t, "HTTP/1.1 103 Early Hints\nLink : a\n\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), HTTP)
	c.send(get("/"))
	c.expect("HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 200 OK\r\n")

	_, c = startClient(t, answering(t, "HTTP/1.1 101 Switching Protocols\nConnection: upgrade\nUpgrade: x\n\nbytes"), HTTP)
	c.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")
	c.expect("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nbytes")

	came, answer := make(chan bool), make(chan bool)
	p, c := startClient(t, startApp(t, func(c net.Conn) {
		_, _ = c.Read(make([]byte, 1000))
		came <- true
		<-answer
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\nContent-Length: 2\n\nok")
	}), HTTP)
	c.send(get("/"))
	<-came
	must.Do(t, p.Drain(ctx))
	answer <- true
	if got := c.rest(); !strings.HasSuffix(got, "content-length: 2\r\nconnection: close\r\n\r\nok") {
		t.Errorf("got %q", got)
	}
}
