package http1

import "bytes"

// AppendClosing appends to dst a response head that has been parsed, with "Connection: close" in place of its options
// close and keep-alive and of its Keep-Alive field (RFC 9112, 9.6). Other connection options are kept, since fields
// depend on them (RFC 9110, 7.6.1).
func AppendClosing(dst, head []byte) []byte {
	var options []byte
	for isStatusLine := true; ; isStatusLine = false {
		eol := bytes.IndexByte(head, '\n')
		line := head[:eol+1]
		head = head[eol+1:]
		if len(line) <= 2 {
			break
		}
		if isStatusLine {
			dst = append(dst, line...)
			continue
		}
		switch colon := bytes.IndexByte(line, ':'); {
		case colon != len("connection"): // which is the length of keep-alive, too
			dst = append(dst, line...)
		case EqualFold(line[:colon], "keep-alive"):
		case EqualFold(line[:colon], "connection"):
			forEachElement(line[colon+1:len(line)-2], func(option []byte) {
				if !EqualFold(option, "close") && !EqualFold(option, "keep-alive") {
					options = append(append(options, option...), ", "...)
				}
			})
		default:
			dst = append(dst, line...)
		}
	}
	dst = append(dst, "connection: "...)
	dst = append(dst, options...)
	return append(dst, "close\r\n\r\n"...)
}
