package http1

import "bytes"

// Guess is the protocol that a client's first bytes suggest.
type Guess uint8

// Guesses.
const (
	Undecided Guess = iota // more bytes are needed
	Request                // the client means to send a request; whether it is well-formed is for ParseRequest
	NotHTTP
)

// Sniff guesses from the first bytes of a client whether it uses HTTP/1: whether they have a request line, which
// begins with a token and ends with a version. Other text protocols (SMTP, Redis, …) have no such line.
func Sniff(b []byte) Guess {
	text := TrimBlank(b)
	if eol := bytes.IndexByte(text, '\n'); eol >= 0 {
		if isRequestLine(text[:eol]) {
			return Request
		}
		return NotHTTP
	}
	return sniffPart(text)
}

// TrimBlank returns b without leading white space and empty lines, which do not begin a request.
func TrimBlank(b []byte) []byte { return bytes.TrimLeft(b, "\r\n \t") }

// isRequestLine reports whether a line is meant to be a request line.
func isRequestLine(line []byte) bool {
	const version = "http/"
	line = bytes.TrimRight(line, "\r \t")
	first := bytes.IndexAny(line, " \t")
	last := bytes.LastIndexAny(line, " \t")
	return first > 0 && IsToken(line[:first]) && len(line)-last > len(version) &&
		EqualFold(line[last+1:last+1+len(version)], version)
}

// maxWord is the longest first word of an incomplete line that can still be a method, bytes.
const maxWord = 24

// sniffPart guesses from an incomplete line. Clients of some protocols send a word without an end of line and wait
// for an answer (ZooKeeper's "ruok"), so only bytes that look like a method need more bytes.
func sniffPart(text []byte) Guess {
	word, target, isWhole := bytes.Cut(text, []byte(" "))
	switch {
	case len(word) > maxWord, len(word) > 0 && !IsToken(word), bytes.IndexByte(target, 0) >= 0: // as in Git's
		return NotHTTP
	case isMethod(word, isWhole), isUpperCase(word), isWhole && len(target) > 0 && target[0] == '/':
		return Undecided
	}
	return NotHTTP
}

// methods are the methods of HTTP that are in use (RFC 9110, 9.3; RFC 5789; RFC 4918), in lower case.
var methods = []string{"get", "head", "post", "put", "delete", "connect", "options", "trace", "patch",
	"propfind", "proppatch", "mkcol", "copy", "move", "lock", "unlock"}

// isMethod reports whether a word is a method in any case or, unless it is whole, the beginning of one.
func isMethod(word []byte, isWhole bool) bool {
	for _, m := range methods {
		if len(word) > 0 && len(word) <= len(m) && EqualFold(word, m[:len(word)]) && (!isWhole || len(word) == len(m)) {
			return true
		}
	}
	return false
}

// isUpperCase reports whether a word consists of capitals, as extension methods do. The empty word does.
func isUpperCase(word []byte) bool {
	for _, c := range word {
		if (c < 'A' || c > 'Z') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

// MayBeRequest reports whether a server may take a client's bytes for the beginning of a request, of HTTP/0.9 as well.
func MayBeRequest(b []byte) bool {
	word := TrimBlank(b)
	if end := bytes.IndexAny(word, "\r\n \t"); end >= 0 {
		word = word[:end]
	}
	return Sniff(b) != NotHTTP || isMethod(word, true) || isUpperCase(word)
}
