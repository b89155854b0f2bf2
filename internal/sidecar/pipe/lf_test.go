package pipe

import "testing"

// A head whose lines end by LF is refused when it is whole, and not waited for.
func TestRequestWithLFLines(t *testing.T) {
	for _, parts := range [][]string{{"GET / HTTP/1.1\nHost: app\n\n"}, {"GET / HTTP/1.1\nHost: app\n", "\n"}, {"GET / HTTP/1.1\r\nHost: app\n\n"}} {
		_, c := startClient(t, answering(t, okBody), HTTP)
		for _, part := range parts {
			c.send(part)
		}
		if resp := c.response("GET"); resp.StatusCode != 400 || !resp.Close {
			t.Errorf("%q: %v", parts, resp)
		}
	}
}
