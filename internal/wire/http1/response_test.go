package http1

import (
	"testing"
	"time"
)

func TestAppendResponse(t *testing.T) {
	now := time.Date(2026, 11, 22, 5, 0, 0, 0, time.UTC)
	const head = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 4\r\ncontent-type: text/plain\r\ndate: Sun, 22 Nov 2026 05:00:00 GMT\r\n" +
		"server: x\r\nconnection: close\r\n\r\n"
	if got := string(AppendResponse([]byte("before "), 503, "server: x\r\n", "gone", false, now)); got != "before "+head+"gone" {
		t.Errorf("%q", got)
	}
	if got := string(AppendResponse(nil, 503, "server: x\r\n", "gone", true, now)); got != head {
		t.Errorf("%q", got)
	}
	h, err := ParseResponse([]byte(head))
	if body := h.ResponseBody(false); err != nil || !h.Close || body.Kind != LengthBody || body.Left != 4 {
		t.Errorf("%+v, %v", h, err)
	}
}
