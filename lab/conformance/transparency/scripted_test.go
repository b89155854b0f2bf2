package transparency

import (
	"net"
	"strings"
	"sync"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

// script is a server of HTTP/1.1 whose every byte is here, and what its clients do. Each client has a path of its own,
// by which the server counts how often it got a request.
type script struct {
	name  string
	words string // of the clients; @ alone is the row's path
	steps []step
	only  string // kinds of client; by default all
}

const (
	ok       = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	get      = "GET@"
	tick     = 50 * time.Millisecond
	followed = "GET@ GET@" // the second request shows whether the connection, or another, is of use after the first
)

// scripts are behaviours that real servers show rarely.
var scripts = []script{
	// Closes that no head announces.
	{"end before a response", get, []step{head, shut}, ""},
	{"reset before a response", get, []step{head, reset}, ""},
	{"end before the second response", followed, []step{head, send(ok), head, shut}, ""},
	{"reset before the second response", followed, []step{head, send(ok), head, reset}, ""},
	{"end before the response to a POST", "GET@ POST@:10", []step{head, send(ok), head, body, shut}, ""},
	{"reset before the response to a POST", "GET@ POST@:10", []step{head, send(ok), head, body, reset}, ""},
	{"one response, then the end", "GET@ ~100 GET@ ~100 GET@", []step{head, send(ok), shut}, "-curl"},
	{"one response, then a reset", "GET@ ~100 GET@ ~100 GET@", []step{head, send(ok), pause(tick), reset}, "-curl"},
	{"idle for 200 ms, then the end", "GET@ ~400 GET@ ~400 POST@:10", []step{head, send(ok), pause(4 * tick), shut}, "-curl"},
	{"500 responses, each seventh with an unannounced end", "GET@*500", seven(shut), "go aiohttp node undici java"}, // which repeat what met a close,
	{"half-closes after a response", "GET@ ~100 GET@", []step{head, send(ok), fin, rest}, "-curl"},

	// Responses that end early.
	{"end in a head", get, []step{head, send("HTTP/1.1 200 OK\r\nContent-Le"), pause(tick), shut}, ""},
	{"reset in a head", get, []step{head, send("HTTP/1.1 200 OK\r\nContent-Le"), pause(tick), reset}, ""},
	{"end in a body", get, []step{head, send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"), pause(tick), shut}, ""},
	{"reset in a body", get, []step{head, send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"), pause(tick), reset}, ""},
	{"end in chunks", get, []step{head, send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"), pause(tick), shut}, ""},
	{"reset in chunks", get, []step{head, send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"), pause(tick), reset}, ""},
	{"body until the end", followed, []step{head, send("HTTP/1.1 200 OK\r\n\r\n"), pause(tick), send("all"), shut}, ""},
	{"body until the end, HTTP/1.0", followed, []step{head, send("HTTP/1.0 200 OK\r\n\r\nall"), shut}, ""},
	{"body until a reset", get, []step{head, send("HTTP/1.1 200 OK\r\n\r\nhalf"), pause(tick), reset}, ""},
	{"quiet for a second within a body", get, []step{head, send("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf"), pause(20 * tick), send("half"), rest}, ""},
	{"quiet for a second before the head", get, []step{head, pause(20 * tick), send(ok), rest}, ""},

	// Early answers.
	{"413 before the upload, which is read", "POST@:3000000 GET@", []step{head, send("HTTP/1.1 413 No\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno"), fin, rest}, "-aiohttp"},
	{"200 before the upload, which is read", "POST@:1000000 GET@", []step{head, send(ok), body, again}, "-aiohttp -undici -node"},
	{"413 without an end to Expect", "POST@:1000e GET@", []step{head, send("HTTP/1.1 413 No\r\nContent-Length: 2\r\n\r\nno"), again}, "go curl"},
	{"100 to Expect, then 200", "POST@:1000e GET@", []step{head, expected, send(ok), again}, "go curl"},

	// Interim responses.
	{"103, then 200", followed, []step{head, send("HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\n"), pause(tick), send(ok), again}, "-requests -http.client"}, // which take it for the response
	{"100 unasked, then 200", followed, []step{head, send("HTTP/1.1 100 Continue\r\n\r\n" + ok), again}, ""},
	{"102 twice, then 200", followed, []step{head, send("HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n" + ok), again}, "-requests -http.client"}, // which take it for the response

	// Responses without a body.
	{"HEAD with a length", "HEAD@ GET@", []step{head, send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"), head, send(ok), rest}, ""},
	{"HEAD with chunked", "HEAD@ GET@", []step{head, send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"), head, send(ok), rest}, ""},
	{"204", followed, []step{head, send("HTTP/1.1 204 No Content\r\n\r\n"), again}, ""},
	{"304 with a length", followed, []step{head, send("HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\n\r\n"), again}, ""},
	{"length 0", followed, []step{head, send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), again}, ""},

	// Heads and chunks as they are allowed to be.
	{"LF heads", followed, []step{head, send("HTTP/1.1 200 OK\nContent-Length: 2\n\nok"), again}, ""},
	{"a head in parts", followed, inParts("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"), ""},
	{"no reason", followed, []step{head, send("HTTP/1.1 200 \r\nContent-Length: 2\r\n\r\nok"), again}, ""},
	{"a head of 6,000 bytes", followed, []step{head, send("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 6000) + "\r\nContent-Length: 2\r\n\r\nok"), again}, ""},
	{"a hundred lines", followed, []step{head, send("HTTP/1.1 200 OK\r\n" + strings.Repeat("X: y\r\n", 90) + "Content-Length: 2\r\n\r\nok"), again}, ""},
	{"HTTP/1.0 with keep-alive", followed, []step{head, send("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok"), again}, ""},
	{"chunks", followed, []step{head, send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"), again}, ""},
	{"chunks with extensions", followed, []step{head, send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\nok\r\n0\r\n\r\n"), again}, ""},
	{"chunks with a trailer", followed, []step{head, send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 1\r\n\r\n"), again}, ""},
	{"a chunk size of 16 digits", followed, []step{head, send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0000000000000002\r\nok\r\n0\r\n\r\n"), again}, ""},
	{"Connection: close", "GET@ GET@ GET@", []step{head, send("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"), shut}, ""},

	// Heads and chunks as they are not.
	{"a bad first chunk", followed, []step{head, send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\nok\r\n0\r\n\r\n"), rest}, ""},
	{"a bad second chunk", followed, []step{head, send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\nxyz\r\n0\r\n\r\n"), rest}, ""},
	{"a bad chunk after one request", "GET@*2", []step{head, send(ok), head, send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\nok\r\n0\r\n\r\n"), rest}, ""},
	{"equal lengths twice", followed, []step{head, send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok"), again}, ""},
	{"length and chunks", followed, []step{head, send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"), rest}, ""},
	{"chunked twice", followed, []step{head, send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"), rest}, ""},
	{"a folded line", followed, []step{head, send("HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 2\r\n\r\nok"), again}, ""},
	{"white space before a colon", followed, []step{head, send("HTTP/1.1 200 OK\r\nX : a\r\nContent-Length: 2\r\n\r\nok"), again}, ""},
	{"a coding of identity", followed, []step{head, send("HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\nContent-Length: 2\r\n\r\nok"), again}, ""},
	{"a name of two words", followed, []step{head, send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nCache Control: none\r\n\r\nok"), again}, ""},
	{"a head of 100,000 bytes", get, []step{head, send("HTTP/1.1 200 OK\r\n" + strings.Repeat("X: "+strings.Repeat("x", 2000)+"\r\n", 50) + "Content-Length: 2\r\n\r\nok"), again}, ""},
	{"no HTTP at all", get, []step{head, send("hello\r\n\r\n"), rest}, ""},

	// Uploads.
	{"upload of 300,000 bytes", "POST@:300000 GET@", []step{head, body, send(ok), again}, ""},
	{"upload in chunks", "POST@:300000c GET@", []step{head, body, send(ok), again}, ""},
	{"reset within an upload", "POST@:3000000", []step{head, read(1000), reset}, "go curl requests http.client httpx java"},
}

// seven is 500 responses with an end after each seventh.
func seven(end step) (steps []step) {
	for range 7 {
		steps = append(steps, head, send(ok))
	}
	return append(steps, end)
}

func inParts(text string) []step {
	steps := []step{head}
	for len(text) > 0 {
		n := min(20, len(text))
		steps = append(steps, send(text[:n]), pause(tick))
		text = text[n:]
	}
	return append(steps, again)
}

// expected is the 100 to a request that expects it, and its body.
func expected(t *talk) error {
	if t.last == nil || t.last.Header.Get("Expect") == "" {
		return nil
	}
	if err := send("HTTP/1.1 100 Continue\r\n\r\n")(t); err != nil {
		return err
	}
	return body(t)
}

// counter counts requests by path.
type counter struct {
	mu     sync.Mutex // guards counts
	counts map[string]int
}

func (c *counter) add(line string) {
	words := strings.Fields(line)
	if len(words) < 2 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[words[1]]++
}

func (c *counter) of(path string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts[path]
}

// play serves a script until the test ends.
func (p *place) play(steps []step) (port, *counter) {
	at, c := p.port(), &counter{counts: map[string]int{}}
	nettest.Each(p.t, p.listen(at), func(conn net.Conn) { converse(conn, c.add, steps) })
	return at, c
}
