package traffic

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// Protocol is the protocol of a request.
type Protocol string

// The protocols.
const (
	HTTP      Protocol = ""     // HTTP/1.1
	Events    Protocol = "SSE"  // HTTP/1.1, with a response that ends only with its pod
	WebSocket Protocol = "WS"   // held until the peer closes it
	GRPC      Protocol = "GRPC" // a unary or server streaming method
	TCP       Protocol = "TCP"  // bytes, answered by bytes until the peer closes the connection
)

// Request is one kind of request.
type Request struct {
	Protocol Protocol
	Method   string // of HTTP and Events
	Path     string // with the query; of GRPC /SERVICE/METHOD; of TCP empty
	Header   http.Header
	Body     string // of TCP, the bytes; of GRPC, the encoded message; of WebSocket, a text message after the handshake
}

// String is the request's first line without its version.
func (r Request) String() string {
	switch r.Protocol {
	case Events, WebSocket, GRPC:
		return string(r.Protocol) + " " + r.Path
	case TCP:
		return fmt.Sprintf("TCP %.40q", r.Body)
	}
	return r.Method + " " + r.Path
}

// IsEndless reports whether the response ends only with its pod, so that an end in order is the best there is.
func (r Request) IsEndless() bool { return r.Protocol == Events || r.Protocol == WebSocket }

// to is the request for one host, with its body.
func (r Request) to(host string) *http.Request {
	header := r.Header.Clone()
	if header == nil {
		header = http.Header{}
	}
	setDefault := func(name, value string) {
		if header.Get(name) == "" {
			header.Set(name, value)
		}
	}
	setDefault("User-Agent", "rehearse")
	out := &http.Request{Method: r.Method, URL: &url.URL{Opaque: r.Path}, Host: cmp.Or(header.Get("Host"), host),
		Header: header}
	switch r.Protocol {
	case Events:
		setDefault("Accept", "text/event-stream")
	case WebSocket:
		header.Set("Connection", "Upgrade")
		header.Set("Upgrade", "websocket")
		header.Set("Sec-WebSocket-Version", "13")
		header.Set("Sec-WebSocket-Key", "bGFzdGNhbGwgcmVoZWFyc2U=") // any 16 bytes (RFC 6455, 4.1)
		return out                                                  // the body is sent as a message
	}
	if r.Body != "" {
		setDefault("Content-Type", "text/plain")
		out.Body, out.ContentLength = io.NopCloser(strings.NewReader(r.Body)), int64(len(r.Body))
	}
	return out
}
