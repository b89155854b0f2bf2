package http1

import (
	"bytes"
	"net/http"
)

// parseFields parses the field lines (RFC 9112, 5) up to and including the empty line.
func (h *Head) parseFields(b []byte) error {
	for {
		eol := bytes.IndexByte(b, '\n')
		if eol < 1 || b[eol-1] != '\r' {
			return Malformed("a field line does not end in CRLF")
		}
		line := b[:eol-1]
		b = b[eol+1:]
		if len(line) == 0 {
			break
		}
		colon := bytes.IndexByte(line, ':')
		if colon < 1 || !IsToken(line[:colon]) && (h.Status == 0 || !isLooseName(line[:colon])) {
			return Malformed("a field's name is not a token followed by a colon")
		}
		name, value := line[:colon], line[colon+1:]
		if bytes.IndexByte(value, '\r') >= 0 || bytes.IndexByte(value, 0) >= 0 {
			return Malformed("a field's value contains a bare CR or a NUL")
		}
		h.Fields++
		if fieldLengths>>len(name)&1 != 0 {
			if err := h.field(name, value); err != nil {
				return err
			}
		}
	}
	if len(b) != 0 {
		return Malformed("bytes after the end of the head")
	}
	h.Upgrade = h.upgradeField && h.upgradeToken
	if h.Minor == 0 && !h.keepAlive {
		h.Close = true
	}
	return nil
}

// fieldLengths has the bit n set if a name of n bytes may be one that field takes.
const fieldLengths uint64 = 1<<len("host") | 1<<len("expect") | 1<<len("upgrade") | 1<<len("connection") |
	1<<len("content-type") | 1<<len("content-length") | 1<<len("content-encoding") | 1<<len("transfer-encoding")

// field takes one field. Names are compared only with those of the same length.
func (h *Head) field(name, value []byte) error {
	switch len(name) {
	case len("host"):
		if EqualFold(name, "host") {
			if h.hasHost { // RFC 9112, 3.2
				return Malformed("more than one Host")
			}
			h.hasHost = true
		}
	case len("expect"):
		h.Expects = h.Expects || EqualFold(name, "expect") && EqualFold(Trim(value), "100-continue")
	case len("upgrade"):
		if EqualFold(name, "upgrade") {
			h.upgrade(value)
		}
	case len("connection"): // and user-agent, which is as long
		switch {
		case EqualFold(name, "connection"):
			h.connection(value)
		case EqualFold(name, "user-agent"):
			h.UserAgent = Trim(value)
		}
	case len("content-type"):
		if EqualFold(name, "content-type") {
			h.ContentType = Trim(value)
		}
	case len("content-length"):
		if EqualFold(name, "content-length") {
			return h.contentLength(value)
		}
	case len("content-encoding"):
		if EqualFold(name, "content-encoding") {
			h.IsEncoded = h.IsEncoded || !EqualFold(Trim(value), "identity")
		}
	case len("transfer-encoding"):
		if EqualFold(name, "transfer-encoding") {
			return h.transferEncoding(value)
		}
	}
	return nil
}

func (h *Head) connection(value []byte) {
	forEachElement(value, func(option []byte) {
		switch {
		case EqualFold(option, "close"):
			h.Close = true
		case EqualFold(option, "keep-alive"):
			h.keepAlive = true
		case EqualFold(option, "upgrade"):
			h.upgradeToken = true
		}
	})
}

func (h *Head) upgrade(value []byte) {
	h.upgradeField = true
	forEachElement(value, func(protocol []byte) {
		h.WebSocket = h.WebSocket || EqualFold(protocol, "websocket")
	})
}

// contentLength takes a Content-Length field. A second one is an error even if it is equal (RFC 9112, 6.3).
func (h *Head) contentLength(value []byte) error {
	n, ok := parseLength(Trim(value))
	if !ok || h.hasLength {
		return Malformed("Content-Length is not one decimal number")
	}
	h.hasLength = true
	if !h.hasCoding {
		h.Body = Body{Kind: LengthBody, Left: n}
	}
	return nil
}

// transferEncoding takes a Transfer-Encoding field. The coding of a request must be chunked and nothing else. A
// response may have other codings before chunked; if chunked is not the last one, the body ends with the connection
// (RFC 9112, 6.3).
func (h *Head) transferEncoding(value []byte) error {
	isResponse := h.Status != 0
	if h.hasCoding || !isResponse && !EqualFold(Trim(value), "chunked") {
		return &Error{http.StatusNotImplemented, "a Transfer-Encoding other than chunked"}
	}
	h.hasCoding = true
	h.Body = Body{Kind: CloseBody}
	forEachElement(value, func(coding []byte) {
		if h.Body.Kind = CloseBody; EqualFold(coding, "chunked") {
			h.Body.Kind = ChunkedBody
		}
	})
	return nil
}

// Field returns the first value of a field in a head that has been parsed, "" if there is none. name is in lower case.
func Field(head []byte, name string) []byte {
	from, to := FieldLine(head, name)
	if from == to {
		return nil
	}
	return Trim(head[from+len(name)+1 : to-1])
}

// FieldLine returns where the first line of a field begins and where the next line does; equal if there is none.
func FieldLine(head []byte, name string) (from, to int) {
	for {
		eol := bytes.IndexByte(head[from:], '\n')
		if eol < 0 {
			return 0, 0
		}
		to = from + eol + 1
		if eol > len(name) && head[from+len(name)] == ':' && EqualFold(head[from:from+len(name)], name) {
			return from, to
		}
		from = to
	}
}
