package http1

import (
	"errors"
	"net/http"
	"strconv"
	"time"
)

// Error is a violation of the message syntax or of a limit.
type Error struct {
	Status int // status code of the response to a request with this error
	Reason string
}

func (e *Error) Error() string { return e.Reason }

// Malformed returns an Error with status 400.
func Malformed(reason string) *Error { return &Error{http.StatusBadRequest, reason} }

// ErrHeadTooLarge is for a message head that exceeds the caller's limit.
var ErrHeadTooLarge = &Error{http.StatusRequestHeaderFieldsTooLarge, "the head is too large"}

// StatusOf returns the status code with which a proxy answers a request that it could not parse.
func StatusOf(err error) int {
	var e *Error
	if errors.As(err, &e) { // not AsType, which Go 1.25 lacks
		return e.Status
	}
	return http.StatusBadRequest
}

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
