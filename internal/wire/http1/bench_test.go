package http1

import (
	"strings"
	"testing"
)

// heads as curl and browsers send them, and as nginx answers.
const (
	requestHead = "GET /api/items/42?full=true HTTP/1.1\r\nHost: shop.example.com\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0\r\n" +
		"Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\nAccept-Language: en-US,en;q=0.5\r\nAccept-Encoding: gzip, deflate, br\r\n" +
		"Connection: keep-alive\r\nCookie: session=0123456789abcdef0123456789abcdef\r\nX-Request-Id: 6f1c2d3e-0000-4000-8000-000000000000\r\n\r\n"
	responseHead = "HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\nDate: Sat, 22 Nov 2026 04:00:00 GMT\r\nContent-Type: application/json\r\n" +
		"Transfer-Encoding: chunked\r\nConnection: keep-alive\r\nKeep-Alive: timeout=5\r\nVary: Accept-Encoding\r\nCache-Control: no-store\r\n\r\n"
)

var chunkedBody = strings.Repeat("1f4\r\n"+strings.Repeat("x", 0x1f4)+"\r\n", 8) + "0\r\n\r\n"

func BenchmarkRequestHead(b *testing.B)  { benchmarkHead(b, requestHead, ParseRequest) }
func BenchmarkResponseHead(b *testing.B) { benchmarkHead(b, responseHead, ParseResponse) }

func benchmarkHead[T any](b *testing.B, text string, parse func([]byte) (T, error)) {
	head := []byte(text)
	b.SetBytes(int64(len(head)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := parse(head); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkChunked(b *testing.B) { benchmarkChunks(b, chunkedBody) }

func BenchmarkSmallChunks(b *testing.B) {
	benchmarkChunks(b, strings.Repeat("5\r\nhello\r\n", 100)+"0\r\n\r\n")
}

func benchmarkChunks(b *testing.B, text string) {
	body := []byte(text)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		f := Body{Kind: ChunkedBody}
		if _, done, err := f.Advance(body, nil); !done || err != nil {
			b.Fatal(done, err)
		}
	}
}

func BenchmarkAppendClosing(b *testing.B) {
	head := []byte(responseHead)
	var out []byte
	b.ReportAllocs()
	for b.Loop() {
		out = AppendClosing(out[:0], head)
	}
}
