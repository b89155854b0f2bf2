package pipe

import (
	"bytes"
	"errors"
	"net/http"
)

// head is what the framing needs to know of a message head.
type head struct {
	body body

	major, minor byte
	status       int  // of a response
	method       span // of a request
	target       span // of a request

	close       bool // Connection: close, or HTTP/1.0 without keep-alive
	upgrade     bool // Connection: upgrade with an Upgrade field
	isHead      bool // HEAD request
	isConnect   bool // CONNECT request
	hasLength   bool
	hasCoding   bool
	keepAlive   bool
	connection  bool // there is a Connection or Keep-Alive field to rewrite
	quiet       bool // of a prober or scraper, by its User-Agent
	hasHost     bool
	webSocket   bool   // the Upgrade field names websocket
	encoded     bool   // there is a Content-Encoding other than identity
	lines       int    // how many field lines there are
	contentType []byte // of a response; part of the head's bytes
}

// span is a part of the head's bytes.
type span struct{ from, to int }

func (s span) of(b []byte) []byte { return b[s.from:s.to] }

// badHead is a head that cannot be forwarded, and the status that says so.
type badHead struct {
	status int
	why    string
}

func (e *badHead) Error() string { return e.why }

func bad(why string) error { return &badHead{http.StatusBadRequest, why} }

var errTooLarge = &badHead{http.StatusRequestHeaderFieldsTooLarge, "the head is too large"}

// statusOf is the status with which a head that could not be read is answered.
func statusOf(err error) int {
	var b *badHead
	if errors.As(err, &b) {
		return b.status
	}
	return http.StatusBadRequest
}

var endOfHead = []byte("\r\n\r\n")

// parseRequest reads a whole request head, its final empty line included.
//
// It is stricter than RFC 9112 allows a recipient to be, because what it lets
// pass is read again by the app: no bare CR or LF, no line folding (5.2), no
// space around a field's name (5.1), no two lengths (6.3), no coding but chunked.
func parseRequest(b []byte) (h head, err error) {
	eol := bytes.IndexByte(b, '\n')
	if eol < 1 || b[eol-1] != '\r' {
		return h, bad("the request line does not end in CRLF")
	}
	line := b[:eol-1]
	sp := bytes.IndexByte(line, ' ')
	if sp < 1 || !isToken(line[:sp]) {
		return h, bad("the method is not a token")
	}
	h.method = span{0, sp}
	last := len(line) - len(" HTTP/1.1")
	if last <= sp || line[last] != ' ' || !readVersion(line[last+1:], &h) {
		if last > sp && bytes.HasPrefix(line[last+1:], []byte("HTTP/")) {
			return h, &badHead{http.StatusHTTPVersionNotSupported, "the version is neither HTTP/1.0 nor HTTP/1.1"}
		}
		return h, bad("the request line is not method, target and version")
	}
	h.target = span{sp + 1, last}
	if last == sp+1 || !isTarget(line[sp+1:last]) {
		return h, bad("the target is empty or holds a space or a control character")
	}
	switch string(line[:sp]) {
	case "HEAD":
		h.isHead = true
	case "CONNECT":
		h.isConnect = true
	}
	if err := h.fields(b[eol+1:]); err != nil {
		return h, err
	}
	switch {
	case h.hasCoding && h.minor == 0:
		return h, bad("Transfer-Encoding in an HTTP/1.0 request")
	case h.hasCoding && h.hasLength:
		return h, bad("both Content-Length and Transfer-Encoding")
	case h.isConnect && (h.hasCoding || h.hasLength):
		return h, bad("a CONNECT request with a body")
	case h.body.kind == lengthBody && h.body.left == 0:
		h.body.kind = noBody
	}
	return h, nil
}

// parseResponse reads a whole response head. What follows it depends on the
// request as well; see responseBody.
func parseResponse(b []byte) (h head, err error) {
	eol := bytes.IndexByte(b, '\n')
	if eol < 1 || b[eol-1] != '\r' {
		return h, bad("the status line does not end in CRLF")
	}
	line := b[:eol-1]
	if len(line) < len("HTTP/1.1 200") || line[8] != ' ' || !readVersion(line[:8], &h) {
		return h, bad("the status line is not HTTP/1.x and a status")
	}
	for _, c := range line[9:12] {
		if c < '0' || c > '9' {
			return h, bad("the status is not a number of three digits")
		}
		h.status = h.status*10 + int(c-'0')
	}
	if h.status < 100 || len(line) > 12 && line[12] != ' ' || bytes.IndexByte(line, '\r') >= 0 {
		return h, bad("the status line is not HTTP/1.x and a status")
	}
	if err := h.fields(b[eol+1:]); err != nil {
		return h, err
	}
	switch {
	case h.hasCoding && h.hasLength:
		return h, bad("both Content-Length and Transfer-Encoding")
	case h.hasCoding && h.minor == 0: // faulty framing: it lasts until the end (RFC 9112, 6.1)
		h.body = body{kind: untilCloseBody}
		h.close = true
	}
	return h, nil
}

// responseBody says how the body of a response to req ends (RFC 9112, 6.3).
func (h *head) responseBody(req *request) body {
	switch {
	case h.status < 200, h.status == http.StatusNoContent, h.status == http.StatusNotModified, req.isHead:
		return body{}
	case h.hasCoding, h.hasLength:
		if h.body.kind == lengthBody && h.body.left == 0 {
			return body{}
		}
		return h.body
	}
	return body{kind: untilCloseBody}
}

func readVersion(b []byte, h *head) bool {
	if len(b) != 8 || string(b[:5]) != "HTTP/" || b[5] != '1' || b[6] != '.' || b[7] != '0' && b[7] != '1' {
		return false
	}
	h.major, h.minor = 1, b[7]-'0'
	return true
}

// tokenByte holds RFC 9110's tchar.
var tokenByte = func() (t [256]bool) {
	for _, c := range "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ" {
		t[c] = true
	}
	return t
}()
