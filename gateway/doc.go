// Package gateway is an ingress gateway, the reference gateway of the experiment: its answers show whether the end of a
// pod cost a client anything. It accepts HTTP/1.1 and HTTP/2, with TLS and without (prior knowledge), and balances the
// requests over sets of endpoints (Pool), over HTTP/1.1 or HTTP/2 without TLS. Routes select the pool. A Source keeps
// routes, endpoints and certificates up to date: from a file here, from a cluster in package ingress. Run serves, and
// drains as its Termination sets.
//
// It promises that a request is never processed twice: it is sent again only when no endpoint can have processed it.
// Failures are reported as Envoy reports them: status, body, response flag, details, log line and access log.
//
// # Replies of the gateway's own
//
//	404 NR      (nothing)                                 no route
//	503 UH      no healthy upstream                       no endpoints
//	503 URX,UF  … remote connection failure               no endpoint accepted a connection (or: connection timeout)
//	503 UC      … connection termination                  the connection ended before the response
//	502 UPE     … protocol error                          the response is not HTTP, or its head is truncated
//	504 UT      upstream request timeout                  only with RequestTimeout
//	400 DPE     Bad Request                               the request's body is malformed
//	503 DT      the server is shutting down …             the last call (Envoy closes the connection instead)
//
// (… is "upstream connect error or disconnect/reset before headers. reset reason: ", with "retried and the latest" in it
// after a retry.) When the upstream ends in the middle of a body, the response is truncated: HTTP/1.1 without the final
// chunk, HTTP/2 with RST_STREAM. The flag is UPE then. DC means that the client went away first. All of it is what
// Envoy 1.40 sends and logs.
//
// # When a request is sent again
//
//  1. The connection failed: three attempts in all, which is Istio's default, each with another endpoint while there is
//     one, whatever the method. Nothing of the body has been read then.
//  2. A kept-alive connection was closed before any byte of the request was written, and nothing of the body was read.
//  3. The same, except that bytes were written but none reached the endpoint's kernel: its FIN does not acknowledge
//     them, so it closed before it could see the request. Only for GET, HEAD, OPTIONS, TRACE and requests with an
//     Idempotency-Key, and only without a body, since a body cannot be read twice. (Linux only: it needs TCP_INFO.)
//  4. Over HTTP/2, the endpoint reported that it has not processed the request (REFUSED_STREAM, or a GOAWAY with a lower
//     last stream), or the stream never began. The body is repeated from a copy of its first 64 KiB.
//
// Rules 2 and 3 never apply to the first request of a connection: it ends as UC.
//
// net/http's Transport repeats more: any such request on a kept-alive connection that ended before the first byte of the
// response, however long the server had worked on it (shouldRetryRequest in transport.go). A GET that was killed after
// five seconds would silently run again, which Envoy does not do by default and which would hide what a rehearsal is to
// show. conn.go prevents it, unless rule 3 applies.
package gateway
