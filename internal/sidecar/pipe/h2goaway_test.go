package pipe

import (
	"net/http"
	"strings"
	"testing"
)

// A client whose library fails open requests at a GOAWAY gets it between its
// requests; others at once.
func TestH2GoodbyeByManners(t *testing.T) {
	for _, tt := range []struct {
		name   string
		fields []string
		atOnce bool
	}{
		{"no name", nil, false},
		{"Java", []string{"user-agent", "Java-http-client/17.0.15"}, false},
		{"httpx", []string{"user-agent", "python-httpx/0.28.1"}, false},
		{"curl", []string{"user-agent", "curl/8.5.0"}, true},
		{"gRPC", []string{"content-type", "application/grpc"}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := startH2Gate(t)
			p := startPipe(t, g, HTTP)
			r := dialRaw(t, p)
			r.request(1, true, append([]string{":path", "/a"}, tt.fields...)...)
			<-g.requests
			awaitActivity(t, p, 1, 1)
			_ = p.Drain(ctx)
			if isAnnounced := p.Stats().H2.GoAways > 0; isAnnounced && !tt.atOnce {
				t.Error("a GOAWAY while a request is open")
			}
			g.open()
			got := strings.Join(r.frames(), "\n")
			first, answer, last := strings.Index(got, "GOAWAY 2147483647"), strings.Index(got, `DATA 1 "done"`), strings.Index(got, "GOAWAY 1 NO_ERROR")
			if first < 0 || answer < 0 || last < first || last < answer || !tt.atOnce && first < answer {
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
