package gateway

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// All of a line, once.
func TestAccessLogLine(t *testing.T) {
	addr := raw(t, answers)
	g := start(t, setup{Endpoints: []string{addr}, Certificates: selfSigned(t)})
	c, url := g.client(t, true)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/delay/10?x=1", strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "shop.example"
	req.Header.Set("User-Agent", "curl/8")
	req.Header.Set("X-Request-Id", "id-1")
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	line := g.access.next(t)
	f := strings.Fields(line)
	if len(f) != 24 || !strings.HasSuffix(line, "\n") {
		t.Fatalf("%d fields in %q", len(f), line)
	}
	if _, err := time.Parse("[2006-01-02T15:04:05.000Z]", f[0]); err != nil {
		t.Error(err)
	}
	// Times and the gateway's and the client's ports differ each time.
	for _, i := range []int{0, 11, 12, 19, 21} {
		f[i] = "*"
	}
	want := `* "POST /delay/10?x=1 HTTP/2" 200 - via_upstream - "-" 4 2 * * "127.0.0.1" "curl/8" "id-1" "shop.example" "` + addr + `" - * ` + g.addr + ` * shop.example -`
	if got := strings.Join(f, " "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
