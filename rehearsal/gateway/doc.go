// Package gateway is the gateway of a rehearsal: a reverse proxy for HTTP/1.1 whose responses show whether the end of a
// pod cost a client anything. It balances requests over endpoints, which SetEndpoints replaces. For production there
// are Envoy Gateway, Contour and Istio's gateways: docs/gateways.md.
//
// It promises that a request is never processed twice: it is sent again only when no endpoint can have processed it.
//
//  1. The connection failed: three attempts in all, which is Istio's default, each with another endpoint while there is
//     one, whatever the method.
//  2. A kept-alive connection was closed before any byte of the request was written, and nothing of the body was read.
//
// net/http's Transport repeats more: a GET on a kept-alive connection that ended before the first byte of the response,
// however long the server had worked on it (shouldRetryRequest in transport.go). A GET that was killed after five
// seconds would silently run again, which Envoy does not do by default and which would hide what a rehearsal is to
// show. conn.go prevents it.
//
// Its own responses and its access log are Envoy's:
//
//	503 UH      no healthy upstream                       no endpoints
//	503 URX,UF  … remote connection failure               no endpoint accepted a connection (or: connection timeout)
//	503 UC      … connection termination                  the connection ended before the response
//	502 UPE     … protocol error                          the response is not HTTP, or its head is truncated
//
// (… is "upstream connect error or disconnect/reset before headers. reset reason: ", with "retried and the latest" in
// it after a retry.) When the endpoint ends in the middle of a body, the response is truncated, and the flag is UPE. DC
// means that the client closed its connection first.
package gateway
