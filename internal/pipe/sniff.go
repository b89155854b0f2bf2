package pipe

import "bytes"

// preface is how a client of HTTP/2 with prior knowledge begins (RFC 9113, 3.4).
var preface = []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")

func isPrefacePrefix(b []byte) bool {
	n := min(len(b), len(preface))
	return n > 0 && bytes.Equal(b[:n], preface[:n])
}

// maxWord is how long the first word of an incomplete request line may be, bytes.
const maxWord = 24

// sniff tells what the first bytes of a client are. HTTP/1 is what has a request line: a
// token first, and a version last. Whether such a line is correct is for parseRequest to
// say, which answers 400: passed through as bytes it would be a tunnel without any limit.
// Other protocols of text (SMTP, Redis, …) have no such line; those in which the server
// speaks first do not come here. TLS is opaque, too, but for the names in its ClientHello.
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
	text := trimBlank(b)
	if eol := bytes.IndexByte(text, '\n'); eol >= 0 {
		if isRequestLine(text[:eol]) {
			return http1
		}
		return opaque
	}
	m := sniffPart(text)
	if m == undecided && len(b) > c.p.cfg.MaxHead {
		return http1 // its answer is 414
	}
	return m
}

// trimBlank takes white space and empty lines off the beginning. A client that has sent
// nothing else has not begun.
func trimBlank(b []byte) []byte { return bytes.TrimLeft(b, "\r\n \t") }

// isRequestLine says whether a line is meant to be that of a request.
func isRequestLine(line []byte) bool {
	line = bytes.TrimRight(line, "\r \t")
	first := bytes.IndexAny(line, " \t")
	last := bytes.LastIndexAny(line, " \t")
	const version = "http/"
	return first > 0 && isToken(line[:first]) && len(line)-last > len(version) && equalFold(line[last+1:last+1+len(version)], version)
}

// sniffPart tells what the beginning of a line is. Some protocols begin with a word and no
// end of line, and wait for an answer (ZooKeeper's "ruok"): only what looks like a method
// is held back.
func sniffPart(text []byte) mode {
	word, target, whole := bytes.Cut(text, []byte(" "))
	switch {
	case len(word) > maxWord, len(word) > 0 && !isToken(word):
		return opaque
	case isMethod(word, whole), isCapitals(word), whole && len(target) > 0 && target[0] == '/':
		return undecided
	}
	return opaque
}

// methods are those of HTTP that are in use (RFC 9110, 9.3; RFC 5789; RFC 4918), in small
// letters.
var methods = []string{"get", "head", "post", "put", "delete", "connect", "options", "trace", "patch",
	"propfind", "proppatch", "mkcol", "copy", "move", "lock", "unlock"}

// isMethod says whether a word is a method in any case, or unless it is whole the
// beginning of one.
func isMethod(word []byte, whole bool) bool {
	for _, m := range methods {
		if len(word) > 0 && len(word) <= len(m) && equalFold(word, m[:len(word)]) && (!whole || len(word) == len(m)) {
			return true
		}
	}
	return false
}

// isCapitals says whether a word is of capitals, as unknown methods are. So is no word.
func isCapitals(word []byte) bool {
	for _, ch := range word {
		if (ch < 'A' || ch > 'Z') && ch != '-' && ch != '_' {
			return false
		}
	}
	return true
}

// awaitSniff gives a first line that has begun the time that a request head has. It
// returns whether to wait for more: when the app has spoken meanwhile, the connection is
// opaque already.
func (c *conn) awaitSniff() bool {
	b := c.up.buf.bytes()
	if b[0] != 0x16 {
		c.headBegins(trimBlank(b))
	}
	return c.modeNow() != opaque
}
