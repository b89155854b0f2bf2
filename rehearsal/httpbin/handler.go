package httpbin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// DefaultMaxDelay is httpbin's own limit of /delay.
const DefaultMaxDelay = 10 * time.Second

// maxEcho is how much of a request body is echoed, bytes; the rest is discarded.
const maxEcho = 1 << 20

const index = `httpbin-like app of lastcall

/get /headers /anything
/delay/N            seconds, fractions allowed
/status/N           200 to 599
/bytes/N            ?seed=
/stream/N           lines of JSON
/drip               ?duration=&numbytes=&code=&delay=
`

// NewHandler returns the app. A maxDelay of zero means DefaultMaxDelay.
func NewHandler(maxDelay time.Duration) http.Handler {
	if maxDelay == 0 {
		maxDelay = DefaultMaxDelay
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, index)
	})
	mux.HandleFunc("GET /get", echo(false))
	mux.HandleFunc("/anything", echo(true))
	mux.HandleFunc("/anything/", echo(true))
	mux.HandleFunc("GET /headers", func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, map[string]any{"headers": headers(r)})
	})
	mux.HandleFunc("/delay/{seconds}", delay(maxDelay))
	mux.HandleFunc("/status/{code}", status)
	mux.HandleFunc("GET /bytes/{n}", randomBytes)
	mux.HandleFunc("GET /stream/{n}", stream)
	mux.HandleFunc("GET /drip", drip)
	return crossOrigin(mux)
}

// crossOrigin allows requests from pages of any site, as httpbin does.
func crossOrigin(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		origin := r.Header.Get("Origin")
		if origin == "" {
			origin = "*"
		}
		w.Header().Set("Access-Control-Allow-Origin", origin)
		w.Header().Set("Access-Control-Allow-Credentials", "true")
		next.ServeHTTP(w, r)
	})
}

// badRequest answers with the value and the valid values.
func badRequest(w http.ResponseWriter, what, value, accepted string) {
	http.Error(w, fmt.Sprintf("%s %q: must be %s", what, value, accepted), http.StatusBadRequest)
}

func writeJSON(w http.ResponseWriter, v any) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // keep & in URLs
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(b.Bytes()) // the client may be gone
}

// echo answers with the four fields of /get, or with all of /anything.
func echo(all bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		out := about(r)
		if all {
			body, err := withBody(out, r)
			if err != nil {
				badRequest(w, "request body", err.Error(), "a complete body")
				return
			}
			out = body
			out["method"] = r.Method
		}
		writeJSON(w, out)
	}
}

// about is the JSON of /get.
func about(r *http.Request) map[string]any {
	origin, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		origin = r.RemoteAddr
	}
	if forwarded := r.Header.Get("X-Forwarded-For"); forwarded != "" {
		origin = forwarded
	}
	scheme := "http"
	if r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https" {
		scheme = "https"
	}
	return map[string]any{
		"args":    values(r.URL.Query()),
		"headers": headers(r),
		"origin":  origin,
		"url":     scheme + "://" + r.Host + r.URL.RequestURI(),
	}
}

// withBody adds the fields that httpbin has for requests with a body.
func withBody(out map[string]any, r *http.Request) (map[string]any, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxEcho))
	if err != nil {
		return nil, err
	}
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return nil, err
	}
	out["data"], out["files"], out["form"], out["json"] = "", map[string]any{}, map[string]any{}, nil
	if strings.HasPrefix(r.Header.Get("Content-Type"), "application/x-www-form-urlencoded") {
		if form, err := url.ParseQuery(string(body)); err == nil {
			out["form"] = values(form)
			return out, nil
		}
	}
	out["data"] = string(body)
	var v any
	if json.Unmarshal(body, &v) == nil {
		out["json"] = v
	}
	return out, nil
}

// values returns a single value as a string and several as a list, as httpbin does.
func values(v url.Values) map[string]any {
	out := make(map[string]any, len(v))
	for key, list := range v {
		if len(list) == 1 {
			out[key] = list[0]
		} else {
			out[key] = list
		}
	}
	return out
}

func headers(r *http.Request) map[string]string {
	out := map[string]string{"Host": r.Host}
	for key, list := range r.Header {
		out[key] = strings.Join(list, ",")
	}
	return out
}
