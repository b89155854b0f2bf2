package gateway

import (
	"net"
	"strings"
)

// PathKind says how a path is compared, by the rules of the Ingress API.
type PathKind int

const (
	// Prefix matches element by element: /foo matches /foo, /foo/ and /foo/bar, not /foobar. A
	// slash at its end makes no difference; / matches all.
	Prefix PathKind = iota

	// Exact matches the very path, case and last slash included.
	Exact
)

// Route is where requests go.
type Route struct {
	Name string // ROUTE of the access log and label of the metrics; "" has neither
	Pool *Pool
}

// Routes says which route a request takes. It is filled by one goroutine, then given to
// Gateway.SetRoutes, and not changed any more.
//
// Hosts are looked at from the most special on: the exact name, then a wildcard, then
// the rules without a host, which hold for all traffic. Among the paths of a host the longest
// match wins. When no path matches, it is the default of the most special host that
// has one.
type Routes struct {
	exact    map[string]*rules
	wildcard map[string]*rules // by what follows the first label: ".example.com"
	any      rules
}

// rules are those of one host.
type rules struct {
	exact    map[string]*Route
	prefix   map[string]*Route // without the last slash
	fallback *Route
}

// Default is the routes that lead everything to one pool.
func Default(p *Pool) *Routes {
	t := &Routes{}
	t.AddDefault("", &Route{Pool: p})
	return t
}

// Add adds a rule, and reports false when there is one for that host and path already,
// which stays. host is a name in lower case, one with a wildcard as its whole first
// label (*.example.com), or "" for all; path begins with a slash.
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

// AddDefault says where requests for host ("" for all) go that no path matches, unless
// that has been said already.
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

// match finds the route of a request for path (decoded) at host (as it came, with or
// without a port); nil when there is none.
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
		return r // as long as the path itself: nothing is longer
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

// hostname is the name in a Host field: without the port, in lower case, without the
// dot at the end of a fully qualified name.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}
