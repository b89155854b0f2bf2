package admin

import (
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/internal/live"
	"github.com/lastcall-dev/lastcall/internal/sideport"
)

// methods are those that Envoy's HTTP/1 parser accepts.
var methods = strings.Fields("ACL BIND CHECKOUT COPY DELETE GET HEAD LINK LOCK MERGE MKACTIVITY MKCALENDAR MKCOL MOVE M-SEARCH NOTIFY OPTIONS PATCH POST " +
	"PROPFIND PROPPATCH PURGE PUT REBIND REPORT SEARCH SOURCE SUBSCRIBE TRACE UNBIND UNLINK UNLOCK UNSUBSCRIBE")

// ServeHTTP handles one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.due.RLock()
	defer s.due.RUnlock()
	s.own.begin()
	if !slices.Contains(methods, r.Method) {
		s.own.end(http.StatusBadRequest)
		writeBadRequest(w)
		return
	}
	// The response is made while its request counts: as in Envoy, the count includes the request for it.
	a, serve := s.answer(r)
	s.own.end(a.status)
	if serve != nil {
		s.due.RUnlock() // Close does not wait for streams, which Live ends
		defer s.due.RLock()
		serve(s.Live, w, r)
		return
	}
	a.write(w)
}

// answer is the response to a request, or the function that serves it.
func (s *Server) answer(r *http.Request) (a answer, serve func(*live.Feed, http.ResponseWriter, *http.Request)) {
	c, found := s.command(r.URL.Path)
	if c.mutates || sideport.IsLoopback(r) { // at another address Prometheus may use a host name
		if err := sideport.Foreign(r); err != nil {
			return text(http.StatusForbidden, err.Error()), nil
		}
	}
	switch {
	case !found:
		return text(http.StatusNotFound, "invalid path. "+s.commandList()), nil
	case c.mutates && r.Method != http.MethodPost:
		return text(http.StatusMethodNotAllowed, fmt.Sprintf("Method %s not allowed, POST required.", r.Method)), nil
	}
	if c.mutates {
		s.throttle.Log(s.Log, slog.LevelInfo, time.Second, "admin request "+c.path, "query", r.URL.RawQuery, "peer", r.RemoteAddr)
	}
	if c.serve != nil {
		return answer{status: http.StatusOK}, c.serve
	}
	return c.do(s, parseQuery(r.URL.RawQuery)), nil
}

// command finds the command of a path. Envoy first merges slashes and resolves dots (Envoy Gateway requests //stats); a
// slash at the end is another path.
func (s *Server) command(p string) (command, bool) {
	clean := path.Clean("/" + p)
	if len(clean) > 1 && strings.HasSuffix(p, "/") {
		return command{}, false
	}
	for _, c := range s.table {
		if c.path == clean {
			return c, true
		}
	}
	return command{}, false
}
