// Package sockets is the data plane of a pod without any proxy: it watches the
// app's own listening ports in the kernel's table of sockets, and cannot do
// anything but watch. It says when the app may get its SIGTERM.
//
// The promise: a request that the client has sent and the app has not answered
// holds the end up, until the deadline; a pool of idle connections does not.
//
// What the kernel knows of a connection, and what follows from it:
//
//	bytes that the app has not read, or the client has not acknowledged   busy
//	the client spoke last                                                 busy, for as long as it takes
//	bytes moved less than the idle grace ago                              busy
//	who spoke last cannot be told, less than 10 s ago                     busy
//	the response comes in pieces, and paused less than 15 s ago           busy
//	the port's protocol is opaque                                         busy
//	everything else                                                       assumed idle
//
// What it cannot know:
//
//   - Whether the app has said all that it wants to say. A response that pauses looks
//     like one that is complete. One that has come in pieces for half a second is
//     given Options.StreamPause; what is still open at the end is in the report as
//     assumed, and the verdict is not clean.
//   - Several requests on one connection (HTTP/2, pipelining): a quick answer hides
//     a slow one, and a client's WINDOW_UPDATE or ping after the answer reads as a
//     request that is never answered. Options.OpaquePorts for both.
//   - Who spoke last, when both did in one jiffy (1 to 10 ms) and not before our
//     eyes. The client's acknowledgements and the kernel's own tell it mostly: see
//     weigh and readHabits.
//
// It needs no capability and no permission: only to be in the network namespace.
package sockets
