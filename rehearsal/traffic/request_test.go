package traffic

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"testing"
)

// What is written is HTTP, with the caller's headers.
func TestRequestIsHTTP(t *testing.T) {
	for _, tt := range []struct {
		r                  Request
		method, name, want string
		body               string
	}{
		{Request{Path: "/get"}, "GET", "User-Agent", "rehearse", ""},
		{Request{Method: "POST", Path: "/form", Body: "a=1", Header: http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}}, "POST", "Content-Length", "3", "a=1"},
		{Request{Protocol: Events, Path: "/events"}, "GET", "Accept", "text/event-stream", ""},
		{Request{Protocol: WebSocket, Path: "/ws", Body: "hello"}, "GET", "Upgrade", "websocket", ""},
		{Request{Path: "/", Header: http.Header{"X-Evil": {"a\r\nb: c"}}}, "GET", "X-Evil", "a  b: c", ""},
	} {
		var wire bytes.Buffer
		if err := tt.r.to("pod:80").Write(&wire); err != nil {
			t.Errorf("%s: %v", tt.r, err)
		}
		req, err := http.ReadRequest(bufio.NewReader(&wire))
		if err != nil {
			t.Errorf("%s: %v", tt.r, err)
			continue
		}
		body, _ := io.ReadAll(req.Body)
		if req.Method != tt.method || req.Host != "pod:80" || req.Header.Get(tt.name) != tt.want || string(body) != tt.body {
			t.Errorf("%s: got %s, host %s, %s: %q, body %q", tt.r, req.Method, req.Host, tt.name, req.Header.Get(tt.name), body)
		}
	}
}
