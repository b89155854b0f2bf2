// Package pipe is lastcall's own data plane: a 1:1 proxy between the clients of
// a pod and its app that follows the framing of what it carries, so that it can
// tell idle from busy and say goodbye at the right byte.
//
// Each client connection has one connection to the app. Bytes go through as
// they came; only a response head that says goodbye is rewritten. What follows
// the framing is strict: a message whose end two parsers could see in two places
// is answered with 400 and never forwarded.
//
// The way of a byte:
//
//	listener ─ accept ─► conn ── up:   client → head, body ─► app
//	                          └─ down: client ◄─ head, body ── app
//
// up and down are one goroutine each. They share the queue of requests that the
// app has not answered yet, from which busy and idle follow: a connection is
// busy while a request is arriving or unanswered, while it carries a WebSocket, or
// while its protocol is not known (opaque TCP, another upgrade).
//
// A conversation ends in one of these ways, of which docs/endings.md says what
// the client sees:
//
//  1. the client closes: the app's connection is closed when idle, half-closed
//     when a response is still due;
//  2. the app closes: in between responses the client gets a FIN, before a
//     response head a 503, within a body a FIN that the client can tell from an
//     end;
//  3. drain: the response in flight says Connection: close and the FIN travels
//     with its last byte;
//  4. idle at the end of the drain: FIN, and whatever raced with it is counted;
//  5. last call: 503 when no response has begun; at the next boundary a close
//     frame for a WebSocket, and an orderly end for an event stream; FIN else;
//  6. last call within a body that nothing but the connection's end would end: a
//     reset, once the client has all that was sent. It is the only one of ours.
package pipe
