package transparency

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
)

// row is one server, client and behaviour.
type row struct {
	name  string // SERVER/CLIENT/BEHAVIOUR
	modes string // by default all
	rests bool   // for most of its time
	do    func(mode string) (outcome, error)
}

// kinds are the clients of HTTP/1.1.
var kinds = []string{"go", "curl", "requests", "http.client", "httpx", "aiohttp", "node", "undici", "java"}

// can reports whether a kind does a row: only names kinds, or with a minus those that do not.
func can(kind, only string) bool {
	names := strings.Fields(only)
	if slices.Contains(names, "-"+kind) {
		return false
	}
	return len(names) == 0 || strings.HasPrefix(names[0], "-") || slices.Contains(names, kind)
}

var cell atomic.Int64

// scriptedRows are the scripts with each client.
func (p *place) scriptedRows(c *clients) (rows []*row) {
	for _, s := range scripts {
		at, counts := p.play(s.steps)
		for _, kind := range kinds {
			if !can(kind, s.only) {
				continue
			}
			rows = append(rows, &row{name: "script/" + kind + "/" + s.name, do: func(mode string) (outcome, error) {
				path := fmt.Sprint("/", cell.Add(1))
				words, err := c.do(p.t.Context(), kind, mode, "http", at, strings.ReplaceAll(s.words, "@", "@"+path))
				isCut := strings.HasPrefix(s.name, "end in ") || strings.HasPrefix(s.name, "reset in ")
				return outcome{words: words, served: counts.of(path), isCut: isCut}, err
			}})
		}
	}
	return rows
}

// behaviours of real servers, in the words of their clients.
var behaviours = []struct {
	name, words string
	servers     string // "": all with an app, files: also the others; else names
	only        string
	modes       string
}{
	{"kept, past the limit of requests", "GET@/ok*10", "files", "", ""},
	{"kept, past the keep-alive time-out", "GET@/ok ~2700 GET@/ok ~2700 GET@/ok", "files", "-curl", ""},
	{"without a body", "HEAD@/big GET@/204 GET@/304 GET@/none HEAD@/ok GET@/ok", "files", "", ""},
	{"a megabyte", "GET@/big GET@/big GET@/ok", "files", "", ""},
	{"uploads", "POST@/echo:300000 ~50 GET@/ok ~50 POST@/echo:1", "", "", ""},
	{"uploads in chunks", "POST@/echo:100000c ~50 GET@/ok", "node uvicorn go jdk jetty", "", ""},
	{"a stream", "GET@/stream GET@/ok", "", "", ""},
	{"cut within a body", "GET@/cut GET@/ok", "", "", ""},
	{"Connection: close", "GET@/close GET@/close GET@/ok", "", "", ""},
	{"413 to an upload", "POST@/ok:300000 GET@/ok", "nginx apache", "-aiohttp -undici -node", ""},
	{"ended without a response", "GET@/gone GET@/ok", "node go", "", ""},
	{"unannounced closes", "GET@/unannounced*100", "node", "go node", ""},
	{"early hints", "GET@/hints GET@/hints", "node go", "-requests -http.client", ""},
	{"a trailer", "GET@/trailer GET@/ok", "go", "", ""},
	{"Expect: 100-continue", "POST@/echo:1000e GET@/ok", "node go jetty", "go curl", ""},
}

func (p *place) serverRows(c *clients, servers []server) (rows []*row) {
	for _, b := range behaviours {
		for _, s := range servers {
			switch {
			case strings.Contains(s.name, "-"), b.servers == "" && s.isFiles:
				continue
			case b.servers != "" && b.servers != "files" && !slices.Contains(strings.Fields(b.servers), s.name):
				continue
			}
			for _, kind := range kinds {
				if can(kind, b.only) {
					rows = append(rows, httpRow(p, c, s.name, kind, b.name, "http", s.at, b.words))
				}
			}
		}
	}
	return rows
}

func httpRow(p *place, c *clients, server, kind, name, scheme string, at port, words string) *row {
	return &row{name: server + "/" + kind + "/" + name, rests: strings.Contains(words, "~"), do: func(mode string) (outcome, error) {
		out, err := c.do(p.t.Context(), kind, mode, scheme, at, words)
		return outcome{words: out}, err
	}}
}

// secureRows are TLS that the app ends, and HTTP/2 with prior knowledge.
func (p *place) secureRows(c *clients, servers []server) (rows []*row) {
	for _, s := range servers {
		switch s.name {
		case "nginx-tls":
			for _, kind := range kinds {
				r := httpRow(p, c, s.name, kind, "TLS passed through", "https", s.at, "GET@/ok*4 GET@/big GET@/ok")
				r.modes = opaque
				rows = append(rows, r)
			}
		case "go", "nginx-h2":
			for _, kind := range []string{"go-h2", "curl-h2", "httpx-h2", "node2"} {
				rows = append(rows, httpRow(p, c, s.name, kind, "HTTP/2, kept", "http", s.at, "GET@/ok*5 HEAD@/ok GET@/204 GET@/big GET@/none GET@/ok"))
				if s.name == "go" {
					rows = append(rows, httpRow(p, c, s.name, kind, "HTTP/2, uploads and a stream", "http", s.at, "POST@/echo:300000 GET@/stream GET@/trailer GET@/ok"),
						httpRow(p, c, s.name, kind, "HTTP/2, cut within a body", "http", s.at, "GET@/cut GET@/ok"),
						httpRow(p, c, s.name, kind, "HTTP/2, ended without a response", "http", s.at, "GET@/gone GET@/ok"))
				}
			}
		case "uvicorn":
			rows = append(rows, httpRow(p, c, s.name, "websockets", "WebSocket, echo", "http", s.at, "one two 100000 three"),
				httpRow(p, c, s.name, "websockets", "WebSocket, closed by the app", "http", s.at, "one bye"))
		}
	}
	return rows
}
