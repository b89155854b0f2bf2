package gateway

import (
	"net"
	"strings"
)

// PathKind is how a path is compared, by the rules of the Ingress API.
type PathKind int

const (
	// Prefix matches element by element: /foo matches /foo, /foo/ and /foo/bar, but not /foobar. A trailing slash
	// makes no difference; / matches all paths.
	Prefix PathKind = iota

	// Exact matches the same path, including case and a trailing slash.
	Exact
)

// Route is a destination of requests.
type Route struct {
	Name string // ROUTE of the access log and label of the metrics; may be empty
	Pool *Pool
}

// Routes selects the route of a request. One goroutine adds the rules and passes it to Gateway.SetRoutes; it must not be
// changed afterwards.
//
// The most specific host wins: the exact name, then a wildcard, then the rules without a host, which apply to all
// requests. Among the paths of a host the longest match wins. When no path matches, the default of the most specific host
// that has one applies.
type Routes struct {
	exact    map[string]*rules
	wildcard map[string]*rules // by the name without its first label: ".example.com"
	any      rules
}

// rules of one host.
type rules struct {
	exact    map[string]*Route
	prefix   map[string]*Route // without a trailing slash
	fallback *Route
}

// Default returns routes that send all requests to one pool.
func Default(p *Pool) *Routes {
	t := &Routes{}
	t.AddDefault("", &Route{Pool: p})
	return t
}

// Add adds a rule. If there is one for that host and path already, it returns false and the old rule stays. host is a
// name in lower case, a wildcard (*.example.com), or "" for all; path begins with a slash.
func (t *Routes) Add(host string, kind PathKind, path string, r *Route) bool {
	h := t.of(host)
	m := &h.exact
	if kind == Prefix {
		m, path = &h.prefix, strings.TrimRight(path, "/")
	}
	if *m == nil {
		*m = make(map[string]*Route)
	}
	if (*m)[path] != nil {
		return false
	}
	(*m)[path] = r
	return true
}

// AddDefault sets the route of requests for host ("" for all) that match no path. If there is one already, it returns
// false and the old one stays.
func (t *Routes) AddDefault(host string, r *Route) bool {
	h := t.of(host)
	if h.fallback != nil {
		return false
	}
	h.fallback = r
	return true
}

func (t *Routes) of(host string) *rules {
	m := &t.exact
	switch {
	case host == "":
		return &t.any
	case strings.HasPrefix(host, "*."):
		m, host = &t.wildcard, host[1:]
	}
	if *m == nil {
		*m = make(map[string]*rules)
	}
	if (*m)[host] == nil {
		(*m)[host] = &rules{}
	}
	return (*m)[host]
}

// match returns the route of a request for path (decoded) at host (with or without a port), or nil.
func (t *Routes) match(host, path string) *Route {
	host = hostname(host)
	candidates := [...]*rules{t.exact[host], nil, &t.any}
	if i := strings.IndexByte(host, '.'); i > 0 {
		candidates[1] = t.wildcard[host[i:]]
	}
	for _, h := range candidates {
		if r := h.match(path); r != nil {
			return r
		}
	}
	for _, h := range candidates {
		if h != nil && h.fallback != nil {
			return h.fallback
		}
	}
	return nil
}

func (h *rules) match(path string) *Route {
	if h == nil {
		return nil
	}
	if r := h.exact[path]; r != nil {
		return r // no prefix is longer
	}
	if len(h.prefix) == 0 {
		return nil
	}
	for {
		if r := h.prefix[path]; r != nil {
			return r
		}
		i := strings.LastIndexByte(path, '/')
		if i < 0 {
			return nil
		}
		path = path[:i]
	}
}

// hostname returns the name in a Host field: without the port, in lower case, without the trailing dot of a fully
// qualified name.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}
