package agent

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestProfiles(t *testing.T) {
	get := func(r *running, path string) (int, string) {
		resp, err := http.Get(r.status + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	off := start(t, nil)
	if code, _ := get(off, "/debug/pprof/goroutine?debug=2"); code != http.StatusNotFound {
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
		if code, body := get(on, path); code != want.code || !strings.HasPrefix(body, want.text) &&
			!strings.Contains(body[:min(len(body), 200)], want.text) {
			t.Errorf("%s: %d, %.100q; want %d, %q", path, code, body, want.code, want.text)
		}
	}
}
