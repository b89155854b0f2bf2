package http1

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/wire/http1/http1test"
	"github.com/lastcall-dev/lastcall/internal/wire/stormtest"
)

// words are parts of messages, which blind mutations would hardly make.
var words = []string{"\r\n", "\r\n\r\n", "\n", "\r", "\r\n ", "\r\n\t", ":", " ", "\t", ",", ";", "\x00", "\x0b", "\xa0",
	"Content-Length: 3\r\n", "Content-Length: 03\r\n", "Content-Length: 3, 3\r\n", "content-length:0\r\n", "Transfer-Encoding: chunked\r\n",
	"transfer-encoding:\tchunked\r\n", "Transfer-Encoding: identity\r\n", "Transfer-Encoding: gzip, chunked\r\n", "Transfer-Encoding : chunked\r\n",
	"Host: a\r\n", "Connection: close\r\n", "Upgrade: h2c\r\n", "3\r\nabc\r\n", "0\r\n\r\n", "0\r\nA: b\r\n\r\n", "00000000000000003\r\n", ";x=\"\r\n\"",
	"GET / HTTP/1.1\r\n", "POST /x HTTP/1.1\r\n", "HEAD / HTTP/1.0\r\n", "CONNECT a:1 HTTP/1.1\r\n", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 100 \r\n", "HTTP/1.1 304 x\r\n"}

// message is one message as a parser has read it.
type message struct {
	first string // METHOD and TARGET, or the status
	body  string
	end   int // where the next one begins
	open  bool
}

// The differences between net/http and this package, and why each is safe. A message that only one of the two accepts
// is listed by the reason of the other. If both accept a message and find its end in different places, the test fails.
var (
	// weRefuse are the errors of this package for messages that net/http accepts. An error is always safe; the list
	// makes new ones visible. net/http's server is stricter than its ReadRequest; that difference is not listed.
	weRefuse = []string{
		"the request line does not end in CRLF",                // RFC 9112, 2.2 lets a server take a bare LF; two parsers may not agree
		"the status line does not end in CRLF",                 // the same
		"a field line does not end in CRLF",                    // the same
		"the method is not a token",                            // 9110, 5.6.2
		"the request line is not method, target and version",   // exactly one space each
		"the version is neither HTTP/1.0 nor HTTP/1.1",         // framing of other versions is unknown
		"the target is empty or contains a space or a control", // 9112, 3.2
		"the status line is not HTTP/1.x and a status",         // 9112, 4
		"the status is not a number of three digits",           // 9112, 4
		"a field's name is not a token followed by a colon",    // 9112, 5.1; folded lines, 5.2, too
		"a field's value contains a bare CR or a NUL",          // 9110, 5.5
		"Content-Length is not one decimal number",             // also twice the same, which 9112, 6.3 allows a recipient to fix
		"both Content-Length and Transfer-Encoding",            // 9112, 6.1: net/http ignores the length
		"a Transfer-Encoding other than chunked",               // also twice the same
		"Transfer-Encoding in an HTTP/1.0 request",             // 9112, 6.1: net/http ignores it
		"a CONNECT request with a body",                        // 9110, 9.3.6
		"more than one Host",                                   // 9112, 3.2
		"chunk size is not a hexadecimal number",               // net/http: 16 digits, and a bare LF after it
		"chunk extension contains a bare CR or LF",             // RFC 9112, 7.1.1; net/http: a bare LF ends it
		"chunk extensions are too long",                        // net/http has another limit
		"chunk data is not followed by CRLF",                   // never of net/http
		"trailer section contains something other than",        // net/http: folded lines, bare LF
		"trailer section is too long",                          // net/http has another limit
	}

	// theyRefuse are the errors of net/http for messages that this package accepts. The app decides about them: it
	// answers with a 400 of its own and closes the connection.
	theyRefuse = []string{
		"invalid URI", "parse ", "invalid URL escape", "invalid character", // targets are left to the app
		"malformed MIME header", "malformed HTTP", "invalid method", // fields that are not framing, "HTTP/1.1 200OK"
		"line too long", // 4 KiB for a chunk line
		"chunked encoding contains too much non-data", "invalid byte in chunk length", // measures of its own
		"suspiciously long trailer", "bad trailer key", "http: suspiciously",
		"unsupported transfer encoding", // gzip, chunked in a response
		"too many header", "malformed chunked", "unexpected EOF",
	}
)

func listed(list []string, err error) bool {
	for _, reason := range list {
		if strings.Contains(err.Error(), reason) {
			return true
		}
	}
	return false
}

var errIncomplete = errors.New("incomplete")

// nextRequest reads what the pipe would forward as one request.
func nextRequest(b []byte) (message, error) {
	skipped := 0
	for len(b) >= 2 && b[0] == '\r' && b[1] == '\n' {
		skipped, b = skipped+2, b[2:]
	}
	n := HeadLen(b, 0)
	if n == 0 {
		return message{}, errIncomplete
	}
	h, err := ParseRequest(b[:n])
	if err != nil {
		return message{}, err
	}
	m, err := takeBody(h.Body, b[n:])
	m.first = string(h.Method) + " " + string(h.Target)
	m.end += skipped + n
	m.open = h.Close || h.IsConnect
	return m, err
}

// takeBody follows a body and collects its content.
func takeBody(f Body, b []byte) (m message, err error) {
	whole := f
	n, done, err := whole.Advance(b, nil)
	if err != nil {
		return m, err
	}
	m.end = n
	if f.Kind == CloseBody {
		m.body = string(b)
		return m, nil
	}
	if !done {
		return m, errIncomplete
	}
	if f.Kind != ChunkedBody {
		m.body = string(b[:n])
		return m, nil
	}
	var data sink
	if _, _, err := f.Advance(b, &data); err != nil {
		return m, err
	}
	m.body = string(data)
	return m, nil
}

// counted counts the bytes that net/http has consumed, which are those read without those in its buffer.
type counted struct {
	all  int
	left *strings.Reader
	r    *bufio.Reader
}

func newCounted(s string) *counted {
	c := &counted{all: len(s), left: strings.NewReader(s)}
	c.r = bufio.NewReader(c.left)
	return c
}

func (c *counted) consumed() int { return c.all - c.left.Len() - c.r.Buffered() }

// sink collects the content of a body.
type sink []byte

func (s *sink) Data(p []byte) { *s = append(*s, p...) }

// FuzzRequests reads requests as net/http does: the same ones, at the same places.
func FuzzRequests(f *testing.F) {
	for _, c := range http1test.Cases() {
		f.Add([]byte(c.Bytes))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, in := range stormtest.Mutations(t, b, words) {
			sameMessages(t, in, nextRequest, theirRequest)
		}
	})
}

// sameMessages reads all messages of b with both parsers.
func sameMessages(t *testing.T, b []byte, next func([]byte) (message, error), theirNext func(*bufio.Reader) (message, error)) {
	theirs := newCounted(string(b))
	for pos := 0; pos < len(b); {
		ours, err := next(b[pos:])
		if errors.Is(err, errIncomplete) {
			return // the pipe waits for more
		}
		want, theirErr := theirNext(theirs.r)
		switch {
		case err != nil:
			if !listed(weRefuse, err) {
				t.Fatalf("we refuse for a reason that is not listed: %v", err)
			}
			return // 400, 502 or the end: nothing after it is read
		case theirErr != nil:
			if !listed(theyRefuse, theirErr) {
				t.Fatalf("net/http refuses what we forward: %v: %q", theirErr, b[pos:])
			}
			return
		}
		pos += ours.end
		if want.end = theirs.consumed(); want.end != pos || want.first != ours.first || want.body != ours.body {
			t.Fatalf("we read %+v until %d, net/http %+v", ours, pos, want)
		}
		if ours.open {
			return
		}
	}
}

// theirMessage has the body of a message whose head net/http has read.
func theirMessage(first string, body io.Reader) (message, error) {
	b, err := io.ReadAll(body)
	return message{first: first, body: string(b)}, err
}

func theirRequest(r *bufio.Reader) (message, error) {
	req, err := http.ReadRequest(r)
	if err != nil {
		return message{}, err
	}
	return theirMessage(req.Method+" "+req.RequestURI, req.Body)
}

// nextResponse reads what the pipe would pass on as one response.
func nextResponse(method string, b []byte) (message, error) {
	n := HeadLen(b, 0)
	if n == 0 {
		return message{}, errIncomplete
	}
	h, err := ParseResponse(b[:n])
	if err != nil {
		return message{}, err
	}
	f := h.ResponseBody(method == http.MethodHead)
	m, err := takeBody(f, b[n:])
	m.first = string(b[9:12])
	m.end += n
	m.open = f.Kind == CloseBody
	return m, err
}

// FuzzResponses reads responses as net/http does: the same ones, at the same places.
func FuzzResponses(f *testing.F) {
	for _, seed := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcHTTP/1.1 204 No Content\r\n\r\n",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x\r\nabc\r\n0\r\nA: b\r\n\r\n",
		"HTTP/1.1 200 OK\r\n\r\nuntil the end",
		"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		"HTTP/1.1 304 Not Modified\r\nContent-Length: 10\r\n\r\nHTTP/1.1 205 Reset\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
		"HTTP/1.1 200\r\nContent-Length: 1\r\n\r\nx",
		"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
	} {
		f.Add([]byte(seed), false)
		f.Add([]byte(seed), true)
	}
	for _, c := range http1test.Cases() { // with a status line in place of the request line
		if _, rest, ok := strings.Cut(c.Bytes, "\r\n"); ok {
			f.Add([]byte("HTTP/1.1 200 OK\r\n"+rest), false)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, head bool) {
		for i, in := range stormtest.Mutations(t, b, words) {
			method := http.MethodGet
			if head != (i%8 == 7) {
				method = http.MethodHead
			}
			sameMessages(t, in, func(b []byte) (message, error) { return nextResponse(method, b) }, func(r *bufio.Reader) (message, error) {
				resp, err := http.ReadResponse(r, &http.Request{Method: method})
				if err != nil {
					return message{}, err
				}
				return theirMessage(resp.Status[:3], resp.Body)
			})
		}
	})
}
