package http1

import (
	"net/http"
	"strconv"
	"time"
)

// AppendResponse appends a response with a body of text, without it if isHead, and Connection: close. fields are
// additional field lines, each with its CRLF.
func AppendResponse(dst []byte, status int, fields, body string, isHead bool, now time.Time) []byte {
	dst = append(dst, "HTTP/1.1 "...)
	dst = strconv.AppendInt(dst, int64(status), 10)
	dst = append(dst, ' ')
	dst = append(dst, http.StatusText(status)...)
	dst = append(dst, "\r\ncontent-length: "...)
	dst = strconv.AppendInt(dst, int64(len(body)), 10)
	dst = append(dst, "\r\ncontent-type: text/plain\r\ndate: "...)
	dst = now.UTC().AppendFormat(dst, http.TimeFormat)
	dst = append(dst, "\r\n"...)
	dst = append(dst, fields...)
	dst = append(dst, "connection: close\r\n\r\n"...)
	if !isHead {
		dst = append(dst, body...)
	}
	return dst
}
