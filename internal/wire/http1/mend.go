package http1

import (
	"bytes"
	"slices"
)

// ErrFraming is for a response whose end its readers may find in different places.
var ErrFraming = Malformed("Content-Length and Transfer-Encoding do not show one end of the body")

// ResponseHeadLen is HeadLen for a response, whose lines may end in a bare LF (RFC 9112, 2.2).
func ResponseHeadLen(b []byte, scanned int) int {
	for from := max(0, scanned-len(endOfHead)+1); ; {
		eol := bytes.IndexByte(b[from:], '\n')
		if eol < 0 {
			return 0
		}
		from += eol + 1
		switch rest := b[from:]; {
		case len(rest) > 0 && rest[0] == '\n':
			return from + 1
		case len(rest) > 1 && rest[0] == '\r' && rest[1] == '\n':
			return from + 2
		}
	}
}

// MendResponse appends to dst the head of a response that ParseResponse has refused as a proxy may pass it on, so that
// all clients find the same end: lines end in CRLF (RFC 9112, 2.2), folded ones are one line (5.2), there is no white
// space before a colon (5.1), equal lengths are one (RFC 9110, 8.6), chunked is applied once and replaces a length
// (RFC 9112, 6.3).
func MendResponse(dst, head []byte) ([]byte, error) {
	var fields [][]byte // name, value; name, value; …
	line, head := mendedLine(head)
	dst = append(append(dst, line...), "\r\n"...)
	for {
		if line, head = mendedLine(head); len(line) == 0 {
			break
		}
		if line[0] == ' ' || line[0] == '\t' {
			if len(fields) == 0 {
				return nil, Malformed("the first field line is folded")
			}
			value := &fields[len(fields)-1]
			*value = append(append(*value, ' '), Trim(line)...)
			continue
		}
		name, value, ok := bytes.Cut(line, []byte(":"))
		if name = bytes.TrimRight(name, " \t"); !ok || !isLooseName(name) {
			return nil, Malformed("a field's name is not a token followed by a colon")
		}
		fields = append(fields, name, slices.Clip(Trim(value)))
	}
	var lengths, codings [][]byte
	for ; len(fields) > 0; fields = fields[2:] {
		name, value := fields[0], fields[1]
		switch {
		case EqualFold(name, "content-length"):
			forEachElement(value, func(n []byte) { lengths = append(lengths, n) })
		case EqualFold(name, "transfer-encoding"):
			forEachElement(value, func(coding []byte) { codings = append(codings, coding) })
		default:
			dst = append(append(append(append(dst, name...), ": "...), value...), "\r\n"...)
		}
	}
	return appendFraming(dst, lengths, codings)
}

// appendFraming appends the fields that show the end of the body, and the end of the head.
func appendFraming(dst []byte, lengths, codings [][]byte) ([]byte, error) {
	isChunked := func(i int) bool { return EqualFold(codings[i], "chunked") }
	// It means no coding (RFC 2616, 3.6).
	codings = slices.DeleteFunc(codings, func(coding []byte) bool { return EqualFold(coding, "identity") })
	for n := len(codings); n > 1 && isChunked(n-1) && isChunked(n-2); n-- {
		codings = codings[:n-1]
	}
	for i := range codings {
		if isChunked(i) != (i == len(codings)-1) {
			return nil, ErrFraming
		}
	}
	for _, n := range lengths {
		if !bytes.Equal(n, lengths[0]) {
			return nil, ErrFraming
		}
	}
	switch {
	case len(codings) > 0 && len(lengths) > 0 && bytes.HasPrefix(dst, []byte("HTTP/1.0")): // which has no codings
		return nil, ErrFraming
	case len(codings) > 0:
		dst = append(append(append(dst, "transfer-encoding: "...), bytes.Join(codings, []byte(", "))...), "\r\n"...)
	case len(lengths) > 0:
		dst = append(append(append(dst, "content-length: "...), lengths[0]...), "\r\n"...)
	}
	return append(dst, "\r\n"...), nil
}

// mendedLine is the first line without its CRLF or LF, and the rest.
func mendedLine(b []byte) (line, rest []byte) {
	line, rest, _ = bytes.Cut(b, []byte("\n"))
	return bytes.TrimSuffix(line, []byte("\r")), rest
}
