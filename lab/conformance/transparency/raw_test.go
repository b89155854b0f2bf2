package transparency

import (
	"net"
	"strings"
	"time"
)

// raw are conversations of which both sides are scripted: the bytes, and each side's end, must be those of direct.
var raw = []struct {
	name        string
	modes       string // without http for what is no HTTP
	client, app []step
}{
	{"server first", opaque, []step{read(6), send("hi"), rest}, []step{send("hello\n"), read(2), send("bye"), shut}},
	{"server first, one zero byte", opaque, []step{read(1), send("hi"), rest}, []step{send("\x00"), read(2), shut}},
	{"server first, four zero bytes", opaque, []step{read(4), send("hi"), rest}, []step{send("\x00\x00\x00\x00"), read(2), shut}},
	{"server first after a second", opaque, []step{rest}, []step{pause(20 * tick), send("hello\n"), shut}},
	{"a word, then a half-close", opaque, []step{send("PING"), fin, rest}, []step{rest, send("echo"), shut}},
	{"GET alone, then a half-close", opaque, []step{send("GET"), fin, rest}, []step{rest, send("echo"), shut}},
	{"one byte, then a half-close", opaque, []step{send("D"), fin, rest}, []step{rest, send("echo"), shut}},
	{"a TLS byte, then a half-close", opaque, []step{send("\x16"), fin, rest}, []step{rest, send("echo"), shut}},
	{"two TLS bytes, then a half-close", opaque, []step{send("\x16\x03"), fin, rest}, []step{rest, send("echo"), shut}},
	{"GET alone, then a wait", opaque, []step{send("GET"), read(4), fin, rest}, []step{read(3), send("echo"), rest}},
	{"a TLS byte, then a wait", opaque, []step{send("\x16"), read(4), fin, rest}, []step{read(1), send("echo"), rest}},
	{"half-close, then 100,000 bytes", opaque, []step{send("\x01\x02\x03"), fin, rest}, []step{rest, bytesOf(100000), shut}},
	{"the app half-closes first", opaque, []step{send("\x01"), rest, bytesOf(100000), shut}, []step{read(1), send("x"), fin, rest}},
	{"the app resets", opaque, []step{send("\x01"), rest}, []step{read(1), send("half a file"), pause(2 * tick), reset}},
	{"the client resets", opaque, []step{send("\x01\x02\x03"), pause(2 * tick), reset}, []step{rest}},
	{"the app resets what it has not answered", opaque, []step{send("\x01"), rest}, []step{read(1), reset}},
	{"the app closes at once", opaque, []step{rest}, []step{shut}},
	{"the app resets at once", "auto tcp captured", []step{rest}, []step{pause(2 * tick), reset}},
	{"the client closes at once", opaque, []step{pause(tick), shut}, []step{rest}},
	{"quiet for two seconds, then an echo", opaque, []step{send("\x01"), pause(40 * tick), send("\x02"), read(1), shut}, []step{read(2), send("x"), rest}},
	{"MySQL's greeting", opaque, []step{read(19), send("\x01\x00\x00\x01"), rest}, []step{send("\x10\x00\x00\x00\x0a8.0.0\x00abcdefgh"), read(4), shut}},
	{"SMTP", opaque, []step{read(7), send("EHLO a\r\n"), read(8), send("QUIT\r\n"), rest}, []step{send("220 a\r\n"), read(8), send("250 ok\r\n"), read(6), send("221\r\n"), shut}},
	{"Redis inline", opaque, []step{send("PING\r\n"), read(7), send("QUIT\r\n"), rest}, []step{read(6), send("+PONG\r\n"), read(6), send("+OK\r\n"), shut}},
	{"Git", opaque, []step{send("0031git-upload-pack /a\x00host=a\x00"), rest}, []step{read(31), send("0000"), pause(40 * tick), rest}},
	{"memcached", opaque, []step{send("get a\r\n"), read(5), fin, rest}, []step{read(7), send("END\r\n"), rest}},

	{"urgent data in line", opaque, []step{send("\x01ab"), pause(tick), urgent, pause(tick), send("cd"), fin, rest}, []step{inLine, rest, send("x"), shut}},
	{"urgent data out of band", opaque, []step{inLine, rest}, []step{send("\x01ab"), pause(tick), urgent, pause(tick), send("cd"), shut}},
	{"urgent data that is not read", opaque, []step{send("\x01ab"), pause(tick), urgent, pause(tick), send("cd"), fin, rest}, []step{rest, send("x"), shut}},
	{"urgent data within 8,000,000 bytes", opaque, []step{send("\x01"), bytesOf(4000000), urgent, bytesOf(4000000), fin, rest}, []step{inLine, rest, send("x"), shut}},
	{"HTTP, urgent data within an upload", all, []step{send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 8000000\r\n\r\n"), bytesOf(4000000), urgent, bytesOf(4000000), read(len(ok)), shut},
		[]step{head, read(8000000), send(ok), rest}},
	{"HTTP, half-close after the request", all, []step{send(want), fin, rest}, []step{head, pause(tick), send(ok), rest, shut}},
	{"HTTP, half-close in a head", opaque, []step{send(want[:20]), pause(tick), fin, rest}, []step{rest, send("HTTP/1.1 400 Bad Request\r\n\r\n"), shut}},
	{"HTTP, half-close in a second head", all, []step{send(want), read(len(ok)), send(want[:20]), pause(tick), fin, rest}, []step{head, send(ok), rest, send("HTTP/1.1 400 Bad Request\r\n\r\n"), shut}},
	{"HTTP, half-close in a body", all, []step{send(upload10), pause(2 * tick), send("abc"), fin, rest}, []step{head, rest, send("HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\nno"), shut}},
	{"HTTP, half-close in chunks", all, []step{send(uploadChunks + "3\r\nabc\r\n"), fin, rest}, []step{head, rest, send("HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\nno"), shut}},
	{"HTTP, half-close, then a stream", all, []step{send(want), fin, rest}, []step{head, send(chunked), pause(2 * tick), send("2\r\nok\r\n"), pause(2 * tick), send("0\r\n\r\n"), shut}},
	{"HTTP, reset in a body", all, []step{send(upload10), pause(2 * tick), send("abc"), pause(2 * tick), reset}, []step{head, rest}},
	{"HTTP, reset after a request", all, []step{send(want), pause(2 * tick), reset}, []step{head, rest}},
	{"HTTP, reset in a response", all, []step{send(want), read(20), pause(tick), reset}, []step{head, send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"), rest}},
	{"HTTP, three in one write", all, []step{send(want + want + want), read(3 * len(ok)), shut}, []step{head, send(ok), head, send(ok), head, send(ok), rest}},
	{"HTTP, three in one write, answered at once", all, []step{send(want + want + want), read(3 * len(ok)), shut}, []step{head, head, head, send(ok + ok + ok), rest}},
	{"HTTP, the second while the first waits", all, []step{send(want), pause(tick), send(want), read(2 * len(ok)), shut}, []step{head, pause(4 * tick), send(ok), head, send(ok), rest}},
	{"HTTP, a request in single bytes", all, append(each(want), read(len(ok)), shut), []step{head, send(ok), rest}},
	{"HTTP, LF lines in a request", all, []step{send("GET / HTTP/1.1\nHost: a\n\n"), read(len(ok)), shut}, []step{head, send(ok), rest}},
	{"HTTP/1.0 request", all, []step{send("GET / HTTP/1.0\r\n\r\n"), rest}, []step{head, send("HTTP/1.0 200 OK\r\n\r\nall"), shut}},
	{"HTTP, empty lines before a request", all, []step{send("\r\n" + want), read(len(ok)), shut}, []step{head, send(ok), rest}},
	{"HTTP, a method of its own", all, []step{send("PURGE / HTTP/1.1\r\nHost: a\r\n\r\n"), read(len(ok)), shut}, []step{head, send(ok), rest}},
	{"HTTP, early answer, then the rest of the upload", all, []step{send(upload10), read(len(ok)), send("0123456789" + want), read(len(ok)), shut},
		[]step{head, send(ok), read(10), head, send(ok), rest}},
	{"HTTP, Expect answered without the body", all, []step{send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 10\r\n\r\n"), read(len(no)), send(want), read(len(ok)), shut},
		[]step{head, send(no), head, send(ok), rest}},
	{"HTTP, 413 and lingering close", all, []step{send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n"), bytesOf(1000), pause(20 * tick), bytesOf(199000), rest},
		[]step{head, send(closing), fin, rest}},
	{"HTTP, 413 and reading on for two seconds", all, []step{send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n"), bytesOf(1000), pause(40 * tick), bytesOf(199000), rest},
		[]step{head, send(closing), read(200000), shut}},
	{"HTTP, idle, closed by the app", all, []step{send(want), rest}, []step{head, send(ok), pause(2 * tick), shut}},
	{"HTTP, idle, reset by the app", all, []step{send(want), rest}, []step{head, send(ok), pause(2 * tick), reset}},
	{"HTTP, closed by the app at once", all, []step{send(want), rest}, []step{head, shut}},
	{"HTTP, reset by the app at once", all, []step{send(want), rest}, []step{head, reset}},
	{"HTTP, the second closed without a byte", all, []step{send(upload0), read(len(ok)), send(upload0), rest}, []step{head, send(ok), head, shut}},
	{"HTTP, the second reset without a byte", all, []step{send(upload0), read(len(ok)), send(upload0), rest}, []step{head, send(ok), head, reset}},
	{"HTTP, until a reset", all, []step{send(want), rest}, []step{head, send("HTTP/1.1 200 OK\r\n\r\nhalf"), pause(2 * tick), reset}},
	{"HTTP, reset in a length", all, []step{send(want), rest}, []step{head, send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"), pause(2 * tick), reset}},
	{"HTTP, end in a length", all, []step{send(want), rest}, []step{head, send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"), pause(2 * tick), shut}},
	{"upgrade, bytes after the 101", all, []step{send(upgrade), read(len(switching)), send("ping"), read(4), fin, rest}, []step{head, send(switching), read(4), send("pong"), rest, shut}},
	{"upgrade, bytes before the 101", all, []step{send(upgrade + "ping"), read(len(switching) + 4), fin, rest}, []step{head, read(4), send(switching + "pong"), rest, shut}},
	{"upgrade, the app speaks with its 101", all, []step{send(upgrade), read(len(switching) + 5), fin, rest}, []step{head, send(switching + "hello"), rest, shut}},
	{"upgrade, half-close before the 101", all, []step{send(upgrade), fin, rest}, []step{head, rest, send(switching + "late"), shut}},
	{"upgrade, declined", all, []step{send(upgrade), read(len(ok)), send(want), read(len(ok)), shut}, []step{head, send(ok), head, send(ok), rest}},
	{"upgrade, reset by the app", all, []step{send(upgrade), rest}, []step{head, send(switching), pause(2 * tick), reset}},
	{"upgrade, reset by the client", all, []step{send(upgrade), read(len(switching)), pause(2 * tick), reset}, []step{head, send(switching), rest}},
	{"an answer of ICY", opaque, []step{send(want), rest}, []step{head, send("ICY 200 OK\r\nicy-name: a\r\n\r\n"), pause(2 * tick), send("music"), shut}},
	{"an answer without a head", opaque, []step{send(want), rest}, []step{head, send("a\r\n\r\nb"), pause(2 * tick), reset}},
	{"HTTP, the client sends on while it is answered until the end", all, []step{send("SOURCE / HTTP/1.0\r\n\r\n"), read(19), send("music"), pause(tick), send("GET / HT"), fin, rest},
		[]step{head, send("HTTP/1.0 200 OK\r\n\r\n"), rest, send("bye"), shut}},
	{"HTTP, an upgrade that a stream answers", all, []step{send(upgrade), read(19), send("in"), read(3), fin, rest}, []step{head, send("HTTP/1.1 200 OK\r\n\r\n"), read(2), send("out"), rest, shut}},
	{"CONNECT with a length of 0", all, []step{send("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\nContent-Length: 0\r\n\r\n"), read(19), send("ping"), read(4), fin, rest},
		[]step{head, send("HTTP/1.1 200 OK\r\n\r\n"), read(4), send("pong"), rest, shut}},
	{"CONNECT", all, []step{send("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n"), read(19), send("ping"), read(4), fin, rest}, []step{head, send("HTTP/1.1 200 OK\r\n\r\n"), read(4), send("pong"), rest, shut}},
}

const (
	opaque       = "auto tcp captured"
	all          = "http auto tcp captured"
	want         = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
	upload0      = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"
	upload10     = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n"
	uploadChunks = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
	chunked      = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	no           = "HTTP/1.1 413 No\r\nContent-Length: 2\r\n\r\nno"
	closing      = "HTTP/1.1 413 No\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno"
	upgrade      = "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"
	switching    = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"
)

// each sends a text in single bytes.
func each(text string) (steps []step) {
	for i := range text {
		steps = append(steps, send(text[i:i+1]), pause(time.Millisecond))
	}
	return steps
}

// rawRows are those of the table above.
func (p *place) rawRows() (rows []*row) {
	for _, r := range raw {
		at := p.port()
		listener := p.listen(at)
		sides := make(chan *talk, 16)
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				go func() { sides <- converse(conn, nil, r.app) }()
			}
		}()
		rows = append(rows, &row{name: "script/raw/" + r.name, modes: r.modes, do: func(mode string) (outcome, error) {
			for len(sides) > 0 {
				<-sides // of a connection that was not the row's: a probe of the port
			}
			var conn net.Conn
			conn, err := p.dial(mode)(p.t.Context(), "tcp", p.address(at, mode))
			if err != nil {
				return outcome{}, err
			}
			client, app := converse(conn, nil, r.client).String(), "none"
			for deadline := time.After(limit); app == "none"; {
				select {
				case side := <-sides:
					app = side.String()
				case <-deadline:
					app = "nothing"
				}
			}
			if strings.HasPrefix(r.name, "HTTP") {
				app = strings.TrimSuffix(strings.TrimSuffix(app, "FIN"), "RST") // a request has an end of its own
			}
			return outcome{words: []string{"client:" + client, "app:" + strings.ReplaceAll(app, " ", "_")}}, nil
		}})
	}
	return rows
}
