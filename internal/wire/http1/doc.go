// Package http1 parses HTTP/1.1 and HTTP/1.0 messages (RFC 9112) as far as a proxy that forwards their bytes unchanged
// has to: it finds where each head and each body ends, and reads the few fields that decide about the connection.
//
// The parser is stricter than RFC 9112 requires of a recipient, because the app parses the same bytes again. If the
// two could disagree on where a message ends, an attacker could smuggle a request past one of them. A message with
// more than one possible reading is an error, and the proxy answers it instead of forwarding it.
//
// The package has no sockets, goroutines or locks, and parsing allocates nothing. The slices in a Head point into the
// bytes that were parsed.
package http1
