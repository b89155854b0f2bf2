package admin

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/accesslog"
	"github.com/lastcall-dev/lastcall/internal/sidecar/statusserver"
)

// command is one path of the API.
type command struct {
	path    string
	mutates bool // POST only
	do      func(*Server, query) answer
}

var commands = []command{
	{"/drain_listeners", true, func(s *Server, q query) answer {
		s.draining.drain(q.has("graceful"), q.has("skip_exit"))
		return ok()
	}},
	{"/healthcheck/fail", true, func(s *Server, _ query) answer { s.draining.fail(); return ok() }},
	{"/quitquitquit", true, func(s *Server, _ query) answer { a := ok(); a.then = s.Quit; return a }},
	{"/ready", false, (*Server).ready},
	{"/stats", false, func(s *Server, q query) answer { format, _ := q.get("format"); return s.statsAs(format, q) }},
	{"/stats/prometheus", false, func(s *Server, q query) answer { return s.statsAs("prometheus", q) }},
}

// ServeHTTP handles one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.answer(r).write(w)
}

// answer is the response to a request.
func (s *Server) answer(r *http.Request) answer {
	c, found := find(r.URL.Path)
	if c.mutates || statusserver.IsLoopback(r) { // at another address Prometheus may use a host name
		if err := statusserver.Foreign(r); err != nil {
			return text(http.StatusForbidden, err.Error())
		}
	}
	switch {
	case !found:
		return notFound()
	case c.mutates && r.Method != http.MethodPost:
		return text(http.StatusMethodNotAllowed, fmt.Sprintf("Method %s not allowed, POST required.", r.Method))
	}
	if c.mutates {
		s.throttle.Log(s.Log, slog.LevelInfo, time.Second, "admin request "+c.path,
			"query", r.URL.RawQuery, "peer", r.RemoteAddr)
	}
	return c.do(s, query(r.URL.RawQuery))
}

// find returns the command of a path. Envoy first merges slashes and resolves dots (Envoy Gateway requests //stats); a
// slash at the end is another path.
func find(p string) (command, bool) {
	clean := path.Clean("/" + p)
	if strings.HasSuffix(p, "/") {
		return command{}, false
	}
	for _, c := range commands {
		if c.path == clean {
			return c, true
		}
	}
	return command{}, false
}

// notFound lists the existing paths, as Envoy does.
func notFound() answer {
	var b strings.Builder
	b.WriteString("invalid path. admin commands are:\n")
	for _, c := range commands {
		b.WriteString("  " + c.path)
		if c.mutates {
			b.WriteString(" (POST)")
		}
		b.WriteString("\n")
	}
	return text(http.StatusNotFound, b.String())
}

// query is the part of a URL after the question mark. Unlike url.Values it keeps a plus unchanged, as Envoy does: a+ is
// a regular expression.
type query string

// get returns the first value of a parameter.
func (q query) get(name string) (value string, ok bool) {
	for part := range strings.SplitSeq(string(q), "&") {
		n, value, _ := strings.Cut(part, "=")
		if decode(n) == name {
			return decode(value), true
		}
	}
	return "", false
}

// has is true for name, name= and name=anything, as Envoy's switches are.
func (q query) has(name string) bool {
	_, ok := q.get(name)
	return ok
}

// decode resolves %-escapes; invalid ones stay.
func decode(s string) string {
	if plain, err := url.PathUnescape(s); err == nil {
		return plain
	}
	return s
}

// answer is the response of a command.
type answer struct {
	status int
	media  string
	body   []byte
	then   func() // runs after the response was sent; may be nil
}

const (
	mediaText = "text/plain; charset=UTF-8"
	mediaJSON = "application/json"
)

func text(status int, body string) answer {
	return answer{status: status, media: mediaText, body: []byte(body)}
}

func ok() answer { return text(http.StatusOK, "OK\n") }

// write sends the response with Envoy's header fields, in lower case as in Envoy: scripts use grep on them.
func (a answer) write(w http.ResponseWriter) {
	h := w.Header()
	h["content-type"] = []string{a.media}
	h["Content-Type"] = nil // no second one by net/http
	h["cache-control"] = []string{"no-cache, max-age=0"}
	h["x-content-type-options"] = []string{"nosniff"}
	h["date"] = []string{time.Now().UTC().Format(http.TimeFormat)}
	h["Date"] = nil
	h["server"] = []string{accesslog.Server}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body)
	// Before the handler returns, so that the length is still unknown: Envoy's responses are chunked.
	_ = http.NewResponseController(w).Flush()
	if a.then != nil {
		a.then()
	}
}
