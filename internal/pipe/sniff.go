package pipe

import "bytes"

// preface is how a client of HTTP/2 with prior knowledge begins (RFC 9113, 3.4).
var preface = []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")

func isPrefacePrefix(b []byte) bool {
	n := min(len(b), len(preface))
	return n > 0 && bytes.Equal(b[:n], preface[:n])
}

// sniff tells HTTP/1 from everything else by the first line: a method in
// capitals, and a version at the end. Other protocols with words in capitals
// (SMTP, Redis, …) have no such line; those in which the server speaks first do
// not come here. TLS is opaque, too, but for the names in its ClientHello.
func (c *conn) sniff(b []byte) mode {
	if isPrefacePrefix(b) {
		if len(b) < len(preface) {
			return undecided
		}
		return modeH2
	}
	if b[0] == 0x16 {
		return c.sniffTLS(b)
	}
	for len(b) >= 2 && b[0] == '\r' && b[1] == '\n' {
		b = b[2:]
	}
	line, whole := b, false
	if eol := bytes.IndexByte(b, '\n'); eol >= 0 {
		line, whole = bytes.TrimSuffix(b[:eol], []byte("\r")), true
	}
	for i, ch := range line {
		if ch == ' ' && i > 0 {
			break
		}
		if (ch < 'A' || ch > 'Z') && ch != '-' && ch != '_' || i > 24 {
			return opaque
		}
	}
	if !whole {
		if len(b) > c.p.cfg.MaxHead {
			return opaque
		}
		return undecided
	}
	if i := bytes.LastIndexByte(line, ' '); i > 0 && bytes.HasPrefix(line[i+1:], []byte("HTTP/")) {
		return http1
	}
	return opaque
}
