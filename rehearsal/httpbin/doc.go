// Package httpbin is a small app with httpbin's paths, for rehearsing
// terminations: it can be asked to take its time, to stream and to fail, and it
// can be told which of the three usual ways it goes when its process is told to
// stop (see OnTerm).
//
//	GET  /               the list of what there is
//	GET  /get            the request as JSON (also /headers)
//	ANY  /anything       the same with its method and body
//	ANY  /delay/N        answers after N seconds (fractions allowed, capped at MaxDelay)
//	ANY  /status/N       answers with status N (200 to 599)
//	GET  /bytes/N        N bytes (?seed= makes them the same each time)
//	GET  /stream/N       N lines of JSON, one chunk each (at most 100)
//	GET  /drip           ?numbytes= over ?duration= seconds after ?delay=, status ?code=
//
// It speaks HTTP/1.1, and HTTP/2 in clear with prior knowledge.
//
// The JSON is shaped as httpbin's: sorted keys, two spaces, a final newline.
// Where httpbin answers nonsense in a path with its framework's 404 or 500,
// this one answers 400 and says what is accepted.
package httpbin
