// Package transparency compares what a client observes with and without lastcall while nothing drains: rows of a server, a
// client and a behaviour, each direct and behind the pipe as protocol=http, auto and tcp, and in a captured pod. The
// client's user must observe the same or better in each, or byDesign states why not.
//
//	go test -run TestTransparency -v ./lab/conformance/transparency
//
// Servers and clients are real ones; what those do rarely, a server does whose every byte is in the table of scripted
// rows. A client gets words and returns words, in each language the same:
//
//	GET@/path  POST@/path:SIZE  POST@/path:SIZEc  GET@/path*TIMES  ~MS
//
// are requests of one session, the third with a chunked body, and a pause. Each request results in one word:
//
//	STATUS:LENGTH:CRC32     the whole response
//	truncated:STATUS        an error after the head
//	error:eof|reset|…       an error without a head
package transparency
