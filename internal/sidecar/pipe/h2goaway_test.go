package pipe

import (
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/http2"

	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
)

// A client that fails open requests at a GOAWAY gets only the last one, between its requests; one that is not recognized gets
// both between its requests; others get the first one at once.
func TestH2GoAwayByClient(t *testing.T) {
	hyper := []http2.Setting{{ID: 1, Val: 4096}, {ID: 4, Val: 65535}, {ID: 5, Val: 16384}}
	curl := []http2.Setting{{ID: 3, Val: 100}, {ID: 2, Val: 0}}
	for _, tt := range []struct {
		name     string
		settings []http2.Setting
		fields   []string
		first    string // while the request is open, after it, or never
	}{
		{"unknown", nil, []string{"user-agent", "curl/8.5.0"}, "after"},
		{"unknown, through a proxy", nil, []string{"x-forwarded-for", "192.0.2.1"}, "open"},
		{"gRPC", nil, []string{"content-type", "application/grpc"}, "open"},
		{"hyper-h2", hyper, nil, "never"},
		{"gRPC by hyper-h2", hyper, []string{"content-type", "application/grpc"}, "never"},
		{"curl", curl, []string{"user-agent", "python-httpx/0.28.1"}, "open"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := startH2Gate(t)
			p := startPipe(t, g, HTTP)
			r := dialRaw(t, p, tt.settings...)
			r.request(1, true, append([]string{":path", "/a"}, tt.fields...)...)
			<-g.requests
			awaitActivity(t, p, 1, 1)
			_ = p.Drain(ctx)
			if tt.first == "open" {
				polltest.Eventually(t, "a GOAWAY while the request is open", func() bool { return p.Stats().H2.GoAways > 0 })
			}
			g.open()
			got := strings.Join(r.frames(), "\n")
			first, answer, last := strings.Index(got, "GOAWAY 2147483647"), strings.Index(got, `DATA 1 "done"`), strings.Index(got, "GOAWAY 1 NO_ERROR")
			when := "after"
			switch {
			case first < 0:
				when = "never"
			case first < answer:
				when = "open"
			}
			if when != tt.first || answer < 0 || last < max(first, answer) {
				t.Errorf("got\n%s", got)
			}
		})
	}
}

// A client that connects during the drain is served before its GOAWAY.
func TestH2GoodbyeComesWithTheFirstRequest(t *testing.T) {
	t.Parallel()
	p := startPipe(t, startH2(t, func(http.ResponseWriter, *http.Request) {}), HTTP)
	_ = p.Drain(ctx)
	r := dialRaw(t, p)
	awaitActivity(t, p, 1, 0)
	if p.Stats().H2.GoAways > 0 {
		t.Error("a GOAWAY before the first request")
	}
	r.request(1, true, ":path", "/", "user-agent", "curl/8.5.0")
	got := strings.Join(r.frames(), "\n")
	if !strings.Contains(got, "HEADERS 1 end=true :status=200") || !strings.Contains(got, "GOAWAY 2147483647") || !strings.HasSuffix(got, "GOAWAY 1 NO_ERROR") {
		t.Errorf("got\n%s", got)
	}
}
