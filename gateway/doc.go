// Package gateway is an ingress gateway: what stands before the pods and tells, by what it
// answers, whether one of them went well. It takes HTTP/1.1 and HTTP/2, in clear (prior knowledge) and
// over TLS, and spreads the requests over sets of endpoints (Pool), which it speaks HTTP/1.1 to, or HTTP/2
// in clear. Routes say which; a Source keeps all of it up to date: a file here, a cluster in package ingress. Run serves, and
// ends as Termination says, by drain.Termination.
//
// Promise: a request is never sent twice unless it is sure that nobody
// worked on it, and what went wrong is told in Envoy's words: status, body,
// response flag, details, log line and access log.
//
// # What a client gets when there is no answer
//
//	404 NR      (nothing)                                 no route
//	503 UH      no healthy upstream                       no endpoints
//	503 URX,UF  … remote connection failure               no endpoint took the connection (or: connection timeout)
//	503 UC      … connection termination                  the connection ended before the response
//	502 UPE     … protocol error                          what came back is no HTTP response, or only a part of its head
//	504 UT      upstream request timeout                  only if RequestTimeout is set
//	400 DPE     Bad Request                               the request's body is malformed
//	503 DT      the server is shutting down …             the last call (not Envoy's, which cuts it)
//
// (… is "upstream connect error or disconnect/reset before headers. reset
// reason: ", with "retried and the latest" in it after a retry.) When the
// upstream ends in the middle of a body, the response is broken off where it
// is: HTTP/1.1 without a final chunk, HTTP/2 with RST_STREAM. The flag is UPE
// then. DC says that the client went away first. All of it is as Envoy 1.40
// does and logs.
//
// # When a request is sent again
//
//  1. The connection was not made: it is tried three times in all, as Istio does by
//     default, with another endpoint each time while there is one, whatever the
//     method. Nothing of the body has been read then.
//  2. A kept connection turned out to be closed before one byte of the
//     request was written, and nothing of the body was read.
//  3. The same, and the bytes were written but none of them reached the other
//     side's kernel: its FIN does not acknowledge them. It closed before it could
//     know of the request. This is only for GET, HEAD, OPTIONS and TRACE and for what
//     carries an Idempotency-Key, and only without a body, since a body
//     once read cannot be read again. (Linux only: it needs TCP_INFO.)
//
// Rules 2 and 3 never apply to a fresh connection's request: it ends as UC.
//
// net/http's Transport would go further: on a kept connection it repeats any
// such request that was cut before the first byte of the response, however
// long the server had worked on it (shouldRetryRequest in transport.go). A GET that
// was killed after five seconds would silently be run again, which
// no Envoy does by default, and would hide just what a rehearsal is to show. So
// conn.go stops it, unless rule 3 holds.
package gateway
