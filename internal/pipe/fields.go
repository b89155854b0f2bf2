package pipe

import (
	"bytes"
	"net/http"
)

// fields reads the field lines up to and including the empty line.
func (h *head) fields(b []byte) error {
	var upgradeField, upgradeOption bool
	for {
		eol := bytes.IndexByte(b, '\n')
		if eol < 1 || b[eol-1] != '\r' {
			return bad("a field line does not end in CRLF")
		}
		line := b[:eol-1]
		b = b[eol+1:]
		if len(line) == 0 {
			break
		}
		colon := bytes.IndexByte(line, ':')
		if colon < 1 || !isToken(line[:colon]) {
			return bad("a field's name is not a token followed by a colon")
		}
		h.lines++
		name, value := line[:colon], line[colon+1:]
		if bytes.IndexByte(value, '\r') >= 0 || bytes.IndexByte(value, 0) >= 0 {
			return bad("a field's value holds a bare CR or a NUL")
		}
		switch len(name) {
		case len("host"):
			if equalFold(name, "host") {
				if h.hasHost { // RFC 9112, 3.2
					return bad("more than one Host")
				}
				h.hasHost = true
			}
		case len("content-type"):
			if equalFold(name, "content-type") {
				h.contentType = trim(value)
			}
		case len("content-encoding"):
			if equalFold(name, "content-encoding") {
				h.encoded = h.encoded || !equalFold(trim(value), "identity")
			}
		case len("content-length"):
			if equalFold(name, "content-length") {
				n, ok := parseLength(trim(value))
				if !ok || h.hasLength {
					return bad("Content-Length is not one decimal number")
				}
				h.hasLength = true
				if !h.hasCoding {
					h.body = body{kind: lengthBody, left: n}
				}
			}
		case len("transfer-encoding"):
			if equalFold(name, "transfer-encoding") {
				if err := h.coding(value); err != nil {
					return err
				}
			}
		case len("connection"): // and keep-alive and user-agent, which are as long
			if equalFold(name, "user-agent") {
				h.quiet = isQuiet(trim(value))
			} else if equalFold(name, "connection") {
				h.connection = true
				forEachToken(value, func(t []byte) {
					switch {
					case equalFold(t, "close"):
						h.close = true
					case equalFold(t, "keep-alive"):
						h.keepAlive = true
					case equalFold(t, "upgrade"):
						upgradeOption = true
					}
				})
			} else if equalFold(name, "keep-alive") {
				h.connection = true
			}
		case len("upgrade"):
			if equalFold(name, "upgrade") {
				upgradeField = true
				forEachToken(value, func(t []byte) {
					h.webSocket = h.webSocket || equalFold(t, "websocket")
				})
			}
		}
	}
	if len(b) != 0 {
		return bad("bytes after the end of the head")
	}
	h.upgrade = upgradeField && upgradeOption
	if h.minor == 0 && !h.keepAlive {
		h.close = true
	}
	return nil
}

// coding takes a Transfer-Encoding field. A request must be chunked and nothing
// else; a response may have other codings below, and without chunked as the
// last it ends with the connection (RFC 9112, 6.3).
func (h *head) coding(value []byte) error {
	isResponse := h.status != 0
	if h.hasCoding || !isResponse && !equalFold(trim(value), "chunked") {
		return &badHead{http.StatusNotImplemented, "a Transfer-Encoding other than chunked"}
	}
	h.hasCoding = true
	h.body = body{kind: untilCloseBody}
	forEachToken(value, func(t []byte) {
		if h.body.kind = untilCloseBody; equalFold(t, "chunked") {
			h.body.kind = chunkedBody
		}
	})
	return nil
}

// sayClose returns the head with Connection: close in place of whatever it said
// about the connection's future. Other connection options are kept (RFC 9110, 7.6.1).
func sayClose(dst, b []byte) []byte {
	var options []byte
	for first := true; ; first = false {
		eol := bytes.IndexByte(b, '\n')
		line := b[:eol+1]
		b = b[eol+1:]
		if len(line) <= 2 {
			break
		}
		if colon := bytes.IndexByte(line, ':'); !first && colon == len("connection") {
			name, value := line[:colon], line[colon+1:len(line)-2]
			if equalFold(name, "keep-alive") {
				continue
			}
			if equalFold(name, "connection") {
				forEachToken(value, func(t []byte) {
					if !equalFold(t, "close") && !equalFold(t, "keep-alive") {
						options = append(append(options, t...), ", "...)
					}
				})
				continue
			}
		}
		dst = append(dst, line...)
	}
	dst = append(dst, "connection: "...)
	dst = append(dst, options...)
	return append(dst, "close\r\n\r\n"...)
}

// field returns the first value of a field, "" when there is none. It is for
// the access log; the head has been parsed before.
func field(b []byte, name string) string {
	for {
		eol := bytes.IndexByte(b, '\n')
		if eol < 0 {
			return ""
		}
		line := b[:eol]
		b = b[eol+1:]
		if len(line) > len(name) && line[len(name)] == ':' && equalFold(line[:len(name)], name) {
			return string(trim(line[len(name)+1:]))
		}
	}
}

func forEachToken(list []byte, f func([]byte)) {
	for len(list) > 0 {
		t := list
		if comma := bytes.IndexByte(list, ','); comma >= 0 {
			t, list = list[:comma], list[comma+1:]
		} else {
			list = nil
		}
		if t = trim(t); len(t) > 0 {
			f(t)
		}
	}
}

// parseLength reads 1*DIGIT that fits an int64 (RFC 9110, 8.6).
func parseLength(b []byte) (n uint64, ok bool) {
	if len(b) == 0 || len(b) > 18 {
		return 0, false
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
	}
	return n, true
}

func trim(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	for len(b) > 0 {
		switch b[len(b)-1] {
		case ' ', '\t', '\r':
			b = b[:len(b)-1]
			continue
		}
		break
	}
	return b
}

// equalFold compares with a name in lower case.
func equalFold(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

func isToken(b []byte) bool {
	for _, c := range b {
		if !tokenByte[c] {
			return false
		}
	}
	return len(b) > 0
}

func isTarget(b []byte) bool {
	for _, c := range b {
		if c <= ' ' || c == 0x7f {
			return false
		}
	}
	return true
}
