package pipe

import (
	"cmp"
	"slices"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/counters"
	"github.com/lastcall-dev/lastcall/internal/sidecar/tcp"
)

// Connection is a client's connection at one moment. Its JSON is that of /connections; docs/admin-api.md describes it.
type Connection struct {
	Peer     string          `json:"peer"`
	Listener string          `json:"listener"`           // its Label
	Protocol string          `json:"protocol,omitempty"` // http/1.1, http/2, websocket, postgres, redis, tls, tcp
	State    ConnectionState `json:"state"`
	TLS      *tcp.TLSInfo    `json:"tls,omitempty"` // terminated here, or whose ClientHello has been read; else nil
	Age      drain.Millis    `json:"age_ms"`
	Idle     drain.Millis    `json:"idle_ms,omitempty"` // for how long no request has been in flight; 0 unless idle
	App      string          `json:"app"`               // host:port
	Received uint64          `json:"received_bytes"`    // from the client, TLS included
	Sent     uint64          `json:"sent_bytes"`
	Open     int             `json:"open_requests"`      // without a complete response
	Requests []OpenRequest   `json:"requests,omitempty"` // of them the oldest first, at most requestsListed
}

// OpenRequest is a request without a complete response.
type OpenRequest struct {
	Line   string       `json:"request"` // method and target, cut
	Age    drain.Millis `json:"age_ms"`
	Status int          `json:"status,omitempty"` // of its response, when that has begun
}

// ConnectionState is the activity of a connection.
type ConnectionState string

// The states of a connection.
const (
	StateHandshake ConnectionState = "handshake" // of TLS
	StateBusy      ConnectionState = "busy"      // as in drain.Activity
	StateQuiet     ConnectionState = "quiet"     // only requests that do not count, such as probes
	StateIdle      ConnectionState = "idle"
	StateClosing   ConnectionState = "closing" // our FIN is sent, the client's has not come
)

const requestsListed = 100

// Connections lists the open connections, the oldest first. It holds no lock for longer than one connection needs.
func (p *Pipe) Connections() []Connection {
	all := p.all()
	out := make([]Connection, len(all))
	for i, c := range all {
		out[i] = c.list()
	}
	slices.SortStableFunc(out, func(a, b Connection) int { return cmp.Compare(b.Age, a.Age) })
	return out
}

func (c *conn) list() Connection {
	out := Connection{Peer: c.client.RemoteAddr().String(), Listener: label(&c.in.Inbound, c.in.Addr()),
		Age: drain.Millis(time.Since(c.began)), App: c.appName()}
	if hello := c.hello.Load(); hello != nil && hello.Version+hello.ServerName+hello.ALPN != "" {
		out.TLS = hello
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.end.done():
		out.State = StateClosing
	case c.client.IsHandshaking():
		out.State = StateHandshake
	case c.busy:
		out.State = StateBusy
	case c.hasWorkLocked():
		out.State = StateQuiet
	default:
		out.State, out.Idle = StateIdle, drain.Millis(time.Since(c.idleSince))
	}
	out.Protocol = c.protocolLocked()
	for i := range c.queue.len() {
		q := c.queue.at(i)
		out.add(q.line, q.began, q.status)
	}
	if c.h2 != nil {
		for _, s := range c.h2.streams {
			out.add(s.line, s.began, s.status)
		}
	}
	out.Received, out.Sent = c.client.Transferred()
	return out
}

func (c *conn) protocolLocked() string {
	switch c.mode {
	case modeHTTP1:
		return counters.HTTP1.String()
	case modeH2:
		return counters.HTTP2.String()
	case modeWS:
		return "websocket"
	case modeDatabase:
		return c.db.name
	case opaque:
		if hello := c.hello.Load(); hello != nil && hello.ServerName+hello.ALPN != "" && c.in.tls == nil {
			return "tls"
		}
		return "tcp"
	}
	return ""
}

// Protocols counts the connections that have not ended by their protocols: the busy ones, and the others. Like
// Connections it holds no lock for longer than one connection needs.
func (p *Pipe) Protocols() (busy, idle map[string]int) {
	busy, idle = make(map[string]int), make(map[string]int)
	for _, c := range p.all() {
		c.mu.Lock()
		protocol, isOpen, isBusy := c.protocolLocked(), c.counted, c.busy
		c.mu.Unlock()
		switch {
		case isBusy:
			busy[protocol]++
		case isOpen:
			idle[protocol]++
		}
	}
	return busy, idle
}

func (out *Connection) add(line []byte, began time.Time, status int) {
	if out.Open++; out.Open <= requestsListed {
		age := drain.Millis(time.Since(began))
		out.Requests = append(out.Requests, OpenRequest{Line: string(line), Age: age, Status: status})
	}
}
