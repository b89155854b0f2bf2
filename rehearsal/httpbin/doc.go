// Package httpbin is an app for rehearsals: go-httpbin's paths, which answer slowly, stream and fail, in a server that
// stops in one of three ways (see OnTerm). It speaks HTTP/1.1, and HTTP/2 without TLS with prior knowledge.
package httpbin
