package agent

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

func TestProbes(t *testing.T) {
	ln := nettest.Listen(t, "127.0.0.1:0")
	nettest.Serve(t, ln, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/up":
			if r.Host != "shop" || r.Header.Get("X-Probe") != "1" {
				w.WriteHeader(http.StatusBadRequest)
			}
		case "/grpc.health.v1.Health/Check":
			w.Header().Set("Content-Type", "application/grpc")
			w.Header().Set("Trailer", "Grpc-Status")
			_, _ = w.Write([]byte{0, 0, 0, 0, 2, 8, 1})
			w.Header().Set("Grpc-Status", "0")
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	_, closed, _ := net.SplitHostPort(freeAddress(t))

	p, err := ParseProbes(strings.NewReplacer("PORT", port, "CLOSED", closed).Replace(`{
		"/app-health/app/readyz": {"httpGet": {"path": "/up", "port": PORT, "httpHeaders": [{"name": "Host", "value": "shop"}, {"name": "X-Probe", "value": "1"}]}},
		"/app-health/app/livez": {"httpGet": {"path": "down", "port": "PORT"}, "timeoutSeconds": 2},
		"/app-health/tcp/livez": {"tcpSocket": {"port": PORT}},
		"/app-health/grpc/livez": {"grpc": {"port": PORT, "service": "shop"}},
		"/app-health/gone/livez": {"tcpSocket": {"port": CLOSED}},
		"/app-health/gone/readyz": {"grpc": {"port": CLOSED}}
	}`))
	must(t, err)
	for path, want := range map[string]int{
		"/app-health/app/readyz":  200,
		"/app-health/app/livez":   503,
		"/app-health/tcp/livez":   200,
		"/app-health/grpc/livez":  200,
		"/app-health/gone/livez":  500,
		"/app-health/gone/readyz": 500,
		"/app-health/no/livez":    404,
	} {
		w := httptest.NewRecorder()
		p.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if w.Code != want {
			t.Errorf("%s: %d %s; want %d", path, w.Code, w.Body, want)
		}
	}
}

func TestParseProbesRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"{": "must be {", `{"/a": {}}`: "0 of httpGet",
		`{"/a": {"tcpSocket": {"port": "http"}}}`: "must be a number",
		`{"/a": {"tcpSocket": {"port": 0}}}`:      "must be a number",
	} {
		if _, err := ParseProbes(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", text, err, want)
		}
	}
	if p, err := ParseProbes(""); p != nil || err != nil {
		t.Error(p, err)
	}
}

func TestHookToken(t *testing.T) {
	r := start(t, nil, func(o *Options) { o.Status.HookToken = "7f3a" })
	for _, path := range []string{"/wait/7f3b", "/wait/", "/wait/7f3", "/wait/7f3a7"} {
		if code, _ := fetch("GET", r.status+path); code != 404 {
			t.Errorf("%s: %d; want 404", path, code)
		}
	}
	if _, metrics := fetch("GET", r.status+"/metrics"); !strings.Contains(metrics, "lastcall_hook_refused_total 4") {
		t.Errorf("the refusals are not counted:\n%s", metrics)
	}
	if code, body := fetch("GET", r.status+"/wait/7f3a"); code != 200 {
		t.Fatal(code, body)
	}
	close(r.free)
}

func TestProfiles(t *testing.T) {
	off := start(t, nil)
	if code, _ := fetch("GET", off.status+"/debug/pprof/goroutine?debug=2"); code != http.StatusNotFound {
		t.Errorf("without Profiles: %d", code)
	}
	on := start(t, nil, func(o *Options) { o.Status.Profiles = true })
	for path, want := range map[string]struct {
		code int
		text string
	}{
		"/debug/pprof/goroutine?debug=2":  {200, "goroutine "},
		"/debug/pprof/heap?debug=1":       {200, "heap profile"},
		"/debug/pprof/heap":               {200, "\x1f\x8b"},
		"/debug/pprof/profile?seconds=1":  {200, "\x1f\x8b"},
		"/debug/pprof/profile?seconds=-1": {400, "seconds must be"},
		"/debug/pprof/nothing":            {404, "must be goroutine"},
		"/debug/pprof/heap?debug=x":       {400, "debug must be"},
	} {
		if code, body := fetch("GET", on.status+path); code != want.code || !strings.HasPrefix(body, want.text) &&
			!strings.Contains(body[:min(len(body), 200)], want.text) {
			t.Errorf("%s: %d, %.100q; want %d, %q", path, code, body, want.code, want.text)
		}
	}
}
