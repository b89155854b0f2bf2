package admin

import (
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/sideport"
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
	a := s.answer(r)
	s.own.end(a.status)
	a.write(w)
}

// answer is the response to a request.
func (s *Server) answer(r *http.Request) answer {
	c, found := s.command(r.URL.Path)
	if c.mutates || sideport.IsLoopback(r) { // at another address Prometheus may use a host name
		if err := sideport.Foreign(r); err != nil {
			return text(http.StatusForbidden, err.Error())
		}
	}
	switch {
	case !found:
		return text(http.StatusNotFound, "invalid path. "+s.commandList())
	case c.mutates && r.Method != http.MethodPost:
		return text(http.StatusMethodNotAllowed, fmt.Sprintf("Method %s not allowed, POST required.", r.Method))
	}
	if c.mutates {
		s.throttle.Log(s.Log, slog.LevelInfo, time.Second, "admin request "+c.path, "query", r.URL.RawQuery, "peer", r.RemoteAddr)
	}
	return c.do(s, parseQuery(r.URL.RawQuery))
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
