package agent

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/printable"
	"github.com/lastcall-dev/lastcall/internal/sidecar/pipe"
	"github.com/lastcall-dev/lastcall/internal/sidecar/tcp"
	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
)

// connections is GET /connections: the open connections and their requests, which must not leave the pod.
func (s *status) connections(w http.ResponseWriter, r *http.Request) {
	p := s.metrics.pipe()
	if p == nil {
		http.Error(w, "not available with a real Envoy: use the admin port of Envoy", http.StatusNotFound)
		return
	}
	media, body, err := writeConnections(p.Connections(), r.URL.Query().Get("format"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", media)
	_, _ = w.Write(body)
}

// pipe is the data plane, if it is the pipe and has started.
func (m *metrics) pipe() *pipe.Pipe {
	if plane := m.plane.Load(); plane != nil {
		p, _ := (*plane).(*pipe.Pipe)
		return p
	}
	return nil
}

// writeConnections writes a list as a table for people, or with format json for programs.
func writeConnections(list []pipe.Connection, format string) (media string, body []byte, err error) {
	switch format {
	case "", "text":
		return "text/plain; charset=utf-8", connectionsTable(list), nil
	case "json":
		if list == nil {
			list = []pipe.Connection{}
		}
		var b bytes.Buffer
		encoder := json.NewEncoder(printable.JSONWriter(&b))
		encoder.SetEscapeHTML(false) // request lines contain &
		err = encoder.Encode(map[string]any{"connections": list})
		return "application/json", b.Bytes(), err
	}
	return "", nil, fmt.Errorf("format %q: must be text or json", format)
}

func connectionsTable(list []pipe.Connection) []byte {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PEER\tLISTENER\tAPP\tPROTOCOL\tTLS\tSTATE\tAGE\tRECEIVED\tSENT\tREQUEST")
	for _, c := range list {
		state := string(c.State)
		if c.Idle > 0 {
			state += " " + age(c.Idle)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%s\n",
			c.Peer, c.Listener, c.App, cmp.Or(c.Protocol, "-"), tlsText(c.TLS), state, age(c.Age), c.Received, c.Sent,
			oldest(&c))
	}
	_ = w.Flush()
	return b.Bytes()
}

// oldest is the request that has taken longest, and the number of others.
func oldest(c *pipe.Connection) string {
	if len(c.Requests) == 0 {
		return "-"
	}
	r := c.Requests[0]
	s := terminal.Printable(r.Line) + " " + age(r.Age)
	if r.Status != 0 {
		s += " " + strconv.Itoa(r.Status)
	}
	if c.Open > 1 {
		s += fmt.Sprintf(" and %d more", c.Open-1)
	}
	return s
}

// tlsText is the version, or that TLS passes through, and the names.
func tlsText(t *tcp.TLSInfo) string {
	if t == nil {
		return "-"
	}
	words := []string{cmp.Or(t.Version, "passed")}
	for _, s := range []string{t.ServerName, t.ALPN, t.Peer} {
		if s != "" {
			words = append(words, terminal.Printable(s))
		}
	}
	return strings.Join(words, " ")
}

// age is a rounded duration for people: about three digits.
func age(ms drain.Millis) string {
	d := time.Duration(ms).Round(time.Millisecond)
	switch {
	case d >= 10*time.Second:
		return d.Truncate(time.Second).String()
	case d >= time.Second:
		return d.Truncate(100 * time.Millisecond).String()
	}
	return d.String()
}
