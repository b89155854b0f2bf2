package admin

import (
	"bytes"
	"cmp"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// Connection is one connection of a client. Its JSON is that of /connections; docs/admin-api.md describes it.
type Connection struct {
	Peer     string         `json:"peer"`
	Listener string         `json:"listener"`
	Protocol string         `json:"protocol,omitempty"` // empty: unknown so far
	State    string         `json:"state"`
	TLS      *ConnectionTLS `json:"tls,omitempty"`
	AgeMs    int64          `json:"age_ms"`
	IdleMs   int64          `json:"idle_ms,omitempty"`
	App      string         `json:"app"`
	Received uint64         `json:"received_bytes"`
	Sent     uint64         `json:"sent_bytes"`
	Open     int            `json:"open_requests"`
	Requests []OpenRequest  `json:"requests,omitempty"`
}

// ConnectionTLS describes a connection's TLS.
type ConnectionTLS struct {
	Version     string `json:"version,omitempty"` // empty: it passes through
	ServerName  string `json:"server_name,omitempty"`
	ALPN        string `json:"alpn,omitempty"`
	PeerSubject string `json:"peer_subject,omitempty"`
}

// OpenRequest is a request without a complete response.
type OpenRequest struct {
	Request string `json:"request"`
	AgeMs   int64  `json:"age_ms"`
	Status  int    `json:"status,omitempty"` // when the response has begun
}

// connections is /connections, which Envoy does not have.
func (s *Server) connections(q query) answer {
	format, _ := q.get("format")
	media, body, err := WriteConnections(s.Plane.Connections(), format)
	if err != nil {
		return text(http.StatusBadRequest, err.Error()+"\n")
	}
	return answer{status: http.StatusOK, media: media, body: body}
}

// WriteConnections writes a list as a table for people, or with format json for programs.
func WriteConnections(list []Connection, format string) (media string, body []byte, err error) {
	switch format {
	case "", "text":
		return mediaText, connectionsTable(list), nil
	case "json":
		if list == nil {
			list = []Connection{}
		}
		body, err = encode(struct {
			Connections []Connection `json:"connections"`
		}{list}, "")
		return mediaJSON, body, err
	}
	return "", nil, fmt.Errorf("format %q: must be text or json", format)
}

func connectionsTable(list []Connection) []byte {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PEER\tLISTENER\tAPP\tPROTOCOL\tTLS\tSTATE\tAGE\tRECEIVED\tSENT\tREQUEST")
	for _, c := range list {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%s\n",
			c.Peer, c.Listener, c.App, cmp.Or(c.Protocol, "-"), cmp.Or(c.TLS.String(), "-"), c.state(), age(c.AgeMs), c.Received, c.Sent, cmp.Or(c.oldest(), "-"))
	}
	_ = w.Flush()
	return b.Bytes()
}

func (c *Connection) state() string {
	if c.IdleMs > 0 {
		return c.State + " " + age(c.IdleMs)
	}
	return c.State
}

// oldest is the request that has taken longest, and the number of others.
func (c *Connection) oldest() string {
	if len(c.Requests) == 0 {
		return ""
	}
	r := c.Requests[0]
	s := printable(r.Request) + " " + age(r.AgeMs)
	if r.Status != 0 {
		s += " " + strconv.Itoa(r.Status)
	}
	if c.Open > 1 {
		s += fmt.Sprintf(" and %d more", c.Open-1)
	}
	return s
}

// String is the version, or that TLS passes through, and the server name.
func (t *ConnectionTLS) String() string {
	if t == nil {
		return ""
	}
	words := []string{t.Version}
	if t.Version == "" {
		words[0] = "passed"
	}
	for _, s := range []string{t.ServerName, t.ALPN, t.PeerSubject} {
		if s != "" {
			words = append(words, printable(s))
		}
	}
	return strings.Join(words, " ")
}

// printable keeps a client's text from controlling a terminal or breaking the table.
func printable(s string) string {
	quoted := strconv.Quote(s)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// age is a rounded duration for people: about three digits.
func age(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	switch {
	case d >= time.Hour:
		return d.Truncate(time.Minute).String()
	case d >= 10*time.Second:
		return d.Truncate(time.Second).String()
	case d >= time.Second:
		return d.Truncate(100 * time.Millisecond).String()
	}
	return d.String()
}
