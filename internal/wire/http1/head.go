package http1

import (
	"bytes"
	"net/http"
)

// endOfHead ends the last field line and the empty line after it.
var endOfHead = []byte("\r\n\r\n")

// HeadLen returns the length of the head with which b begins, 0 if it is incomplete. scanned bytes have been searched.
func HeadLen(b []byte, scanned int) int {
	from := max(0, scanned-len(endOfHead)+1)
	if i := bytes.Index(b[from:], endOfHead); i >= 0 {
		return from + i + len(endOfHead)
	}
	return 0
}

// EndsByLF reports whether a head without an end, of which scanned bytes were searched before, ends by lines without
// CR. A recipient may accept them (RFC 9112, 2.2), and readers differ about what follows.
func EndsByLF(b []byte, scanned int) bool {
	return bytes.Contains(b[max(0, scanned-1):], []byte("\n\n"))
}

// Head has the parts of a message head that a proxy needs.
type Head struct {
	Minor  byte // minor version: 0 or 1
	Status int  // of a response
	Method []byte
	Target []byte

	Body         Body   // of a request; for a response see ResponseBody
	ContentType  []byte // nil if there is none
	UserAgent    []byte // nil if there is none
	Fields       int    // number of field lines
	Close        bool   // the sender closes the connection: "Connection: close", or HTTP/1.0 without "keep-alive"
	Upgrade      bool   // "Connection: upgrade" and an Upgrade field
	WebSocket    bool   // the Upgrade field contains "websocket"
	Expects      bool   // the request waits for 100 (Continue)
	IsEncoded    bool   // there is a Content-Encoding other than identity
	IsHead       bool   // the method is HEAD
	IsConnect    bool   // the method is CONNECT
	hasLength    bool   // there is a Content-Length
	hasCoding    bool   // there is a Transfer-Encoding
	hasHost      bool
	keepAlive    bool // "Connection: keep-alive"
	upgradeField bool
	upgradeToken bool // "Connection: upgrade"
}

// ParseRequest parses a whole request head, including its final empty line. It accepts no bare CR or LF, no folded
// lines (RFC 9112, 5.2), no white space around a field name (5.1), no second length (6.3), and no transfer coding
// other than chunked.
func ParseRequest(b []byte) (h Head, err error) {
	line, fields, ok := cutLine(b)
	if !ok {
		return h, Malformed("the request line does not end in CRLF")
	}
	if err := h.parseRequestLine(line); err != nil {
		return h, err
	}
	if err := h.parseFields(fields); err != nil {
		return h, err
	}
	switch {
	case h.hasCoding && h.Minor == 0:
		return h, Malformed("Transfer-Encoding in an HTTP/1.0 request")
	case h.hasCoding && h.hasLength:
		return h, Malformed("both Content-Length and Transfer-Encoding")
	case h.IsConnect && (h.hasCoding || h.Body.Left > 0):
		return h, Malformed("a CONNECT request with a body")
	case h.Body.Kind == LengthBody && h.Body.Left == 0:
		h.Body.Kind = NoBody
	}
	return h, nil
}

// parseRequestLine parses method, request target and version (RFC 9112, 3), separated by one space each.
func (h *Head) parseRequestLine(line []byte) error {
	space := bytes.IndexByte(line, ' ')
	if space < 1 || !IsToken(line[:space]) {
		return Malformed("the method is not a token")
	}
	h.Method = line[:space]
	last := len(line) - len(" HTTP/1.1")
	if last <= space || line[last] != ' ' || !h.parseVersion(line[last+1:]) {
		if last > space && bytes.HasPrefix(line[last+1:], []byte("HTTP/")) {
			return &Error{http.StatusHTTPVersionNotSupported, "the version is neither HTTP/1.0 nor HTTP/1.1"}
		}
		return Malformed("the request line is not method, target and version")
	}
	if last == space+1 || !isTarget(line[space+1:last]) {
		return Malformed("the target is empty or contains a space or a control character")
	}
	h.Target = line[space+1 : last]
	switch string(h.Method) {
	case http.MethodHead:
		h.IsHead = true
	case http.MethodConnect:
		h.IsConnect = true
	}
	return nil
}

// ParseResponse parses a whole response head. How its body ends depends on the request as well: see ResponseBody.
func ParseResponse(b []byte) (h Head, err error) {
	line, fields, ok := cutLine(b)
	if !ok {
		return h, Malformed("the status line does not end in CRLF")
	}
	if err := h.parseStatusLine(line); err != nil {
		return h, err
	}
	if err := h.parseFields(fields); err != nil {
		return h, err
	}
	switch {
	case h.hasCoding && h.hasLength:
		return h, Malformed("both Content-Length and Transfer-Encoding")
	case h.hasCoding && h.Minor == 0: // faulty framing: the body ends with the connection (RFC 9112, 6.1)
		h.Body = Body{Kind: CloseBody}
		h.Close = true
	}
	return h, nil
}

// parseStatusLine parses version, status code and optional reason phrase (RFC 9112, 4).
func (h *Head) parseStatusLine(line []byte) error {
	if len(line) < len("HTTP/1.1 200") || line[8] != ' ' || !h.parseVersion(line[:8]) {
		return Malformed("the status line is not HTTP/1.x and a status")
	}
	status, ok := parseLength(line[9:12])
	if !ok {
		return Malformed("the status is not a number of three digits")
	}
	h.Status = int(status)
	if h.Status < 100 || len(line) > 12 && line[12] != ' ' || bytes.IndexByte(line, '\r') >= 0 {
		return Malformed("the status line is not HTTP/1.x and a status")
	}
	return nil
}

// ResponseBody returns the body of a response (RFC 9112, 6.3). isHead is true if the request was a HEAD.
func (h *Head) ResponseBody(isHead bool) Body {
	switch {
	case h.Status < 200, h.Status == http.StatusNoContent, h.Status == http.StatusNotModified, isHead:
		return Body{}
	case h.hasCoding, h.hasLength:
		if h.Body.Kind == LengthBody && h.Body.Left == 0 {
			return Body{}
		}
		h.Body.isResponse = true
		return h.Body
	}
	return Body{Kind: CloseBody}
}

// Tunnel is the status of the response after which the connection is no longer HTTP: 200 stands for all of 2xx. 0: it
// stays HTTP. A PUT without a length that expects 100 (Continue) is a stream of Icecast, as ffmpeg sends it.
func (h *Head) Tunnel() int {
	switch {
	case h.IsConnect:
		return http.StatusOK
	case h.Upgrade:
		return http.StatusSwitchingProtocols
	case h.Expects && string(h.Method) == "PUT" && !h.hasLength && !h.hasCoding:
		return http.StatusContinue
	}
	return 0
}

func (h *Head) parseVersion(b []byte) bool {
	if len(b) != 8 || string(b[:7]) != "HTTP/1." || b[7] != '0' && b[7] != '1' {
		return false
	}
	h.Minor = b[7] - '0'
	return true
}

// cutLine returns the first line without its CRLF, and the rest. ok is false if the line ends otherwise.
func cutLine(b []byte) (line, rest []byte, ok bool) {
	eol := bytes.IndexByte(b, '\n')
	if eol < 1 || b[eol-1] != '\r' {
		return nil, nil, false
	}
	return b[:eol-1], b[eol+1:], true
}

// isTarget reports whether b has no spaces or control characters. The syntax (RFC 9112, 3.2) is left to the app.
func isTarget(b []byte) bool {
	for _, c := range b {
		if c <= ' ' || c == 0x7f {
			return false
		}
	}
	return true
}

// IsIdempotent reports whether a client may repeat a request with this method that a closed connection has left without
// a response (RFC 9110, 9.2.2).
func IsIdempotent(method []byte) bool {
	switch string(method) {
	case "GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE":
		return true
	}
	return false
}
