// Package pipe is lastcall's own data plane: a 1:1 proxy between a pod's clients and its app. It follows the framing of
// the protocols, so that it can distinguish busy connections from idle ones and end each at a message boundary.
//
// Each client connection has its own connection to the app. Bytes pass unchanged; only a response head that announces
// the close of its connection is rewritten. Framing is checked strictly: a message that two parsers could end at
// different places is answered with 400 and not forwarded.
//
//	listener ─ accept ─► conn ── up:   client → head, body ─► app
//	                         └─ down: client ◄─ head, body ── app
//
// up and down are a goroutine each. They share the queue of unanswered requests. A connection is busy while a request
// is arriving or unanswered, while it carries a WebSocket, and while its protocol is unknown (opaque TCP, other
// upgrades).
//
// How a connection ends is the table in endings.go; docs/endings.md describes it from the client's side. Files, from
// top to bottom: pipe.go and listener.go own the connections; drain.go and lastcall.go are the drain's steps; serve.go
// runs one connection; up.go and sniff.go read the client, down.go the app; requests.go, admit.go and responses.go are
// HTTP/1, h2*.go HTTP/2, ws.go WebSocket, database.go databases, and opaque.go everything else; upend.go, rejoin.go
// and restart.go have the ends of either side, end.go does what the table says; activity.go counts; conn.go is a
// connection's state.
package pipe
