package httpbin

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func ask(h http.Handler, method, target, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestPaths(t *testing.T) {
	h := NewHandler(0)
	for _, tt := range []struct {
		method, target string
		code           int
		contains       string
	}{
		{"GET", "/", 200, "/delay/N"},
		{"GET", "/get?a=1&b=2&b=3", 200, `"b": [
      "2",
      "3"
    ]`},
		{"GET", "/get?a=<1>&b=2", 200, `"url": "http://example.com/get?a=<1>&b=2"`},
		{"HEAD", "/get", 200, ""},
		{"POST", "/get", 405, ""},
		{"POST", "/headers", 405, ""},
		{"GET", "/headers", 200, `"Host": "example.com"`},
		{"PUT", "/anything/x", 200, `"method": "PUT"`},
		{"GET", "/delay/0", 200, `"url": "http://example.com/delay/0"`},
		{"GET", "/delay/soon", 400, `delay "soon": must be a number of seconds`},
		{"GET", "/delay/-1", 400, `delay "-1"`},
		{"GET", "/delay/NaN", 400, `delay "NaN"`},
		{"GET", "/status/418", 418, ""},
		{"GET", "/status/302", 302, ""},
		{"GET", "/status/100", 400, "a status from 200 to 599"},
		{"GET", "/status/ok", 400, `status "ok"`},
		{"GET", "/bytes/-1", 400, `bytes "-1"`},
		{"GET", "/bytes/104857601", 400, "from 0 to 104857600"},
		{"GET", "/stream/x", 400, `stream "x"`},
		{"GET", "/drip?numbytes=0", 400, `numbytes "0"`},
		{"GET", "/drip?code=99", 400, `code "99"`},
		{"GET", "/drip?duration=-2", 400, `duration "-2"`},
		{"GET", "/drip?delay=x", 400, `delay "x"`},
		{"POST", "/bytes/1", 405, ""},
		{"GET", "/nothing", 404, ""},
	} {
		t.Run(tt.method+" "+tt.target, func(t *testing.T) {
			w := ask(h, tt.method, tt.target, "")
			if w.Code != tt.code || !strings.Contains(w.Body.String(), tt.contains) {
				t.Fatalf("got %d %q, want %d with %q", w.Code, w.Body, tt.code, tt.contains)
			}
		})
	}
}

// The whole of an answer, as httpbin under gunicorn gives it but for the
// server's own headers.
func TestGetAsHttpbin(t *testing.T) {
	r := httptest.NewRequest("GET", "/get?b=2&a=1&b=3&x=", nil)
	r.Header.Set("User-Agent", "curl/8")
	r.Header.Set("Accept", "*/*")
	w := httptest.NewRecorder()
	NewHandler(0).ServeHTTP(w, r)
	want := `{
  "args": {
    "a": "1",
    "b": [
      "2",
      "3"
    ],
    "x": ""
  },
  "headers": {
    "Accept": "*/*",
    "Host": "example.com",
    "User-Agent": "curl/8"
  },
  "origin": "192.0.2.1",
  "url": "http://example.com/get?b=2&a=1&b=3&x="
}
`
	if got := w.Body.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for name, want := range map[string]string{"Content-Type": "application/json", "Access-Control-Allow-Origin": "*", "Access-Control-Allow-Credentials": "true"} {
		if got := w.Header().Get(name); got != want {
			t.Errorf("%s %q, want %q", name, got, want)
		}
	}
}

func TestBytes(t *testing.T) {
	h := NewHandler(0)
	for _, n := range []string{"0", "1", "100000"} {
		w := ask(h, "GET", "/bytes/"+n+"?seed=7", "")
		if got := w.Header().Get("Content-Length"); got != n || w.Body.Len() != mustAtoi(t, n) {
			t.Errorf("bytes/%s: length %s, %d bytes", n, got, w.Body.Len())
		}
	}
	if a, b := ask(h, "GET", "/bytes/64?seed=7", ""), ask(h, "GET", "/bytes/64?seed=7", ""); a.Body.String() != b.Body.String() {
		t.Error("the same seed gave other bytes")
	}
}

func TestAnythingEchoesBodies(t *testing.T) {
	h := NewHandler(0)
	var got map[string]any
	if err := json.Unmarshal(ask(h, "POST", "/anything", `{"a":1}`).Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got["data"] != `{"a":1}` || got["json"].(map[string]any)["a"] != 1.0 {
		t.Errorf("got %v", got)
	}
}

// In virtual time: the waits are exact, the cap holds, a client that leaves is
// not waited for.
func TestWaits(t *testing.T) {
	for _, tt := range []struct {
		name, target string
		maxDelay     time.Duration
		takes        time.Duration
	}{
		{"a fraction", "/delay/0.25", 0, 250 * time.Millisecond},
		{"httpbin's cap", "/delay/60", 0, 10 * time.Second},
		{"another limit", "/delay/60", time.Minute, time.Minute},
		{"beyond any number", "/delay/1e300", time.Minute, time.Minute},
		{"drip's own", "/drip", 0, 4 * time.Second},
		{"drip", "/drip?duration=1&numbytes=4&delay=0.5&code=201", 0, 1500 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				w := ask(NewHandler(tt.maxDelay), "GET", tt.target, "")
				if took := time.Since(begin); took != tt.takes {
					t.Errorf("took %v, want %v: %d", took, tt.takes, w.Code)
				}
			})
		})
	}
	t.Run("a client that leaves", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			r := httptest.NewRequest("GET", "/delay/9", nil).WithContext(ctx)
			NewHandler(0).ServeHTTP(httptest.NewRecorder(), r)
			if took := time.Since(begin); took != 3*time.Second {
				t.Errorf("took %v", took)
			}
		})
	})
}

func TestStreamIsChunked(t *testing.T) {
	srv := httptest.NewServer(NewHandler(0))
	defer srv.Close()
	defer http.DefaultClient.CloseIdleConnections()
	resp, err := http.Get(srv.URL + "/stream/3")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if len(resp.TransferEncoding) != 1 || resp.TransferEncoding[0] != "chunked" {
		t.Errorf("transfer encoding %v", resp.TransferEncoding)
	}
	lines := 0
	for s := bufio.NewScanner(resp.Body); s.Scan(); lines++ {
		var v struct{ ID int }
		if err := json.Unmarshal(s.Bytes(), &v); err != nil || v.ID != lines {
			t.Errorf("line %d: %s (%v)", lines, s.Text(), err)
		}
	}
	if lines != 3 {
		t.Errorf("%d lines", lines)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
}
