package http1

// IsIdempotent reports whether a client may repeat a request with this method that a closed connection has left without
// a response (RFC 9110, 9.2.2).
func IsIdempotent(method []byte) bool {
	switch string(method) {
	case "GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE":
		return true
	}
	return false
}
