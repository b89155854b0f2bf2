package http1

import (
	"testing"

	"github.com/lastcall-dev/lastcall/internal/wire/http1/http1test"
	"github.com/lastcall-dev/lastcall/internal/wire/stormtest"
)

func TestStorm(t *testing.T) {
	var cases [][]byte
	for _, c := range http1test.Cases() {
		cases = append(cases, []byte(c.Bytes))
	}
	stormtest.Run(t,
		stormtest.Target{Name: "FuzzRequests", Words: words, Seeds: cases, Check: func(t *testing.T, s *stormtest.Storm) { requestsAsNetHTTP(t, s.Input()) }},
		stormtest.Target{Name: "FuzzResponses", Words: words, Check: func(t *testing.T, s *stormtest.Storm) { responsesAsNetHTTP(t, s.Input(), s.Rand.IntN(8) == 0) }},
		stormtest.Target{Name: "FuzzChunked", Words: words, Check: func(t *testing.T, s *stormtest.Storm) { chunkedInPieces(t, s.Input(), s.Small()) }},
	)
}

// words are parts of messages, which blind mutations would hardly make.
var words = []string{"\r\n", "\r\n\r\n", "\n", "\r", "\r\n ", "\r\n\t", ":", " ", "\t", ",", ";", "\x00", "\x0b", "\xa0",
	"Content-Length: 3\r\n", "Content-Length: 03\r\n", "Content-Length: 3, 3\r\n", "content-length:0\r\n", "Transfer-Encoding: chunked\r\n",
	"transfer-encoding:\tchunked\r\n", "Transfer-Encoding: identity\r\n", "Transfer-Encoding: gzip, chunked\r\n", "Transfer-Encoding : chunked\r\n",
	"Host: a\r\n", "Connection: close\r\n", "Upgrade: h2c\r\n", "3\r\nabc\r\n", "0\r\n\r\n", "0\r\nA: b\r\n\r\n", "00000000000000003\r\n", ";x=\"\r\n\"",
	"GET / HTTP/1.1\r\n", "POST /x HTTP/1.1\r\n", "HEAD / HTTP/1.0\r\n", "CONNECT a:1 HTTP/1.1\r\n", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 100 \r\n", "HTTP/1.1 304 x\r\n"}
