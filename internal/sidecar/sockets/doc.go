// Package sockets is the data plane of a pod without a proxy: it watches the app's own listening ports in the kernel's
// table of sockets, and can only watch. It determines when the app may receive its SIGTERM.
//
// The promise: a request that the client has sent and the app has not answered delays the end, until the deadline; a
// pool of idle connections does not.
//
// The kernel's view of a connection, and the conclusions from it:
//
//	bytes that the app has not read, or the client has not acknowledged   busy
//	the client sent last                                                  busy, without a limit
//	bytes moved less than the idle grace ago                              busy
//	it is unclear which side sent last, less than 10 s ago                busy
//	a streaming response, paused less than 15 s ago                       busy
//	the port's protocol is opaque                                         busy
//	everything else                                                       assumed idle
//
// What it cannot see:
//
//   - Whether a response is complete. One that pauses looks like a complete one. A response that has been streaming for
//     half a second may pause for Options.StreamPause; connections still open at the end are in the report as assumed,
//     and the verdict is not clean.
//   - Several requests on one connection (HTTP/2, pipelining): a fast response hides a slow one, and a client's
//     WINDOW_UPDATE or ping after the response looks like a request that is never answered. Options.OpaquePorts is for
//     both.
//   - Which side sent last, if both did in one jiffy (1 to 10 ms) between two looks. The client's acknowledgements and
//     the kernel's own mostly show it: see weigh and readAcks.
//
// It needs no capability and no permission: only to be in the network namespace.
package sockets
