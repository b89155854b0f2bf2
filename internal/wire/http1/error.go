package http1

import (
	"errors"
	"net/http"
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
