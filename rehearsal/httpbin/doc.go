// Package httpbin is an app with httpbin's paths, for rehearsals: it can answer slowly, stream and fail, and stops in one of
// three ways (see OnTerm).
//
//	GET  /               the list of paths
//	GET  /get            the request as JSON (also /headers)
//	ANY  /anything       the same with its method and body
//	ANY  /delay/N        answers after N seconds (fractions allowed, limited to MaxDelay)
//	ANY  /status/N       answers with status N (200 to 599)
//	GET  /bytes/N        N bytes (?seed= makes them the same each time)
//	GET  /stream/N       N lines of JSON, one chunk each (at most 100)
//	GET  /drip           ?numbytes= over ?duration= seconds after ?delay=, status ?code=
//
// It speaks HTTP/1.1, and HTTP/2 without TLS with prior knowledge.
//
// The JSON is formatted as httpbin's: sorted keys, two spaces, a final newline. For invalid values in a path, where
// httpbin's framework answers 404 or 500, it answers 400 with the valid values.
package httpbin
