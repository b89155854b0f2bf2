package http2

import (
	"slices"
	"time"
)

// Closing is the graceful end of a connection (RFC 9113, 6.8): a GOAWAY that refuses nothing, and when the client has
// had the time to read it and its last stream has ended, the GOAWAY that names the last stream.
type Closing struct {
	Client    Client
	stage     Step
	announced time.Time
}

// Step names the frame that is to be sent.
type Step uint8

// Steps of a closing.
const (
	Wait     Step = iota
	Announce      // GOAWAY with MaxStreamID: new requests should use another connection, but are still served
	End           // GOAWAY with the last stream
)

// AnnounceTime is the shortest time between the two GOAWAY frames, as in net/http: requests that the client sends
// before it has read the first one are served. RFC 9113, 6.8 requires at least a round trip.
const AnnounceTime = time.Second

// Moment is the state of a connection that is to be closed. A duration is 0 if it has not begun.
type Moment struct {
	Open     int           // streams
	Idle     time.Duration // since the last stream ended
	Draining time.Duration // since the drain began
	Closing  time.Duration // since idle connections are closed
}

// Next returns the step that is due for a client that has sent a request, Announce once and End until SentLast, and
// when to ask again; 0: when a stream has ended. An Abrupt client gets only the last GOAWAY: hyper-h2's clients repeat
// a request above its last stream, and would fail it after the first GOAWAY, whose last stream is above all.
func (c *Closing) Next(m Moment) (due Step, again time.Duration) {
	switch c.stage {
	case Wait:
		isDue, again := c.Client.due(m)
		if !isDue {
			return Wait, again
		}
		if c.Client != Abrupt {
			c.stage, c.announced = Announce, time.Now()
			return Announce, AnnounceTime
		}
	case Announce:
		if m.Open > 0 {
			return Wait, 0
		}
		if left := time.Until(c.announced.Add(AnnounceTime)); left > 0 {
			return Wait, left
		}
	case End:
		return Wait, 0
	}
	return End, 0
}

// Begun reports whether a step was due.
func (c *Closing) Begun() bool { return c.stage != Wait }

// Ended reports whether the last GOAWAY has been sent.
func (c *Closing) Ended() bool { return c.stage == End }

// SentLast takes note of the last GOAWAY.
func (c *Closing) SentLast() { c.stage = End }

// AppendAnnouncement appends the GOAWAY that refuses nothing yet.
func AppendAnnouncement(dst []byte) []byte { return AppendGoAway(dst, MaxStreamID, NoError, "") }

const (
	// patience is how long the GOAWAY to a client of unknown kind is delayed after idle connections are closed. A proxy
	// that always has a request open must not delay the pod's end until the last call.
	patience = 10 * time.Second

	// longRest is how long a client that is not Orderly must be idle before its GOAWAY: it may still be reading the
	// last response. The time is halved for every halfRest of the drain.
	longRest = 50 * time.Millisecond
	halfRest = 4 * time.Second
)

// Client is a client's treatment of its open requests when a GOAWAY comes, even one with MaxStreamID. The zero value
// is unknown.
type Client uint8

// Kinds of clients.
const (
	Orderly Client = iota + 1 // it lets them finish
	Abrupt                    // it fails them: a GOAWAY must wait until there are none
)

type setting struct {
	id    uint16
	value uint32
}

// implementations are recognized by the content of their SETTINGS, not by the User-Agent: programs set their own,
// and proxies forward those of their clients. The first match counts. Each kind was observed, but for those whose
// source is named, in which a GOAWAY lets open requests finish.
var implementations = []struct {
	client   Client
	alone    bool // there are no other settings
	settings []setting
}{
	{Abrupt, false, []setting{{1, 4096}, {4, 65535}, {5, 16384}}},    // hyper-h2 (httpx, grpclib), hackney: defaults
	{Abrupt, false, []setting{{1, 16384}, {4, 1 << 24}, {5, 16384}}}, // java.net.http; orderly after Java 17
	{Abrupt, true, []setting{{2, 0}, {4, 1 << 18}}},                  // undici, with allowH2; orderly since version 8
	{Abrupt, true, []setting{{2, 0}, {4, 65535}, {5, 16384}}},        // Helidon
	{Abrupt, true, []setting{{3, 32}, {4, 8 << 20}}},                 // Jetty
	{Abrupt, false, []setting{{1, 8192}, {2, 1}, {3, 250}}},          // Apache HttpClient 5: it fails the next requests
	{Orderly, false, []setting{{2, 0}, {3, 100}}},                    // curl
	{Orderly, false, []setting{{2, 0}, {4, 4 << 20}, {6, 10 << 20}}}, // net/http
	{Orderly, false, []setting{{1, 1 << 16}, {4, 6 << 20}}},          // Chromium
	{Orderly, false, []setting{{1, 1 << 16}, {4, 1 << 17}}},          // Firefox
	{Orderly, false, []setting{{2, 0}, {4, 2 << 20}, {5, 16384}}},    // Rust's hyper, reqwest
	// hyper with an adaptive window:
	{Orderly, true, []setting{{2, 0}, {4, 65535}, {5, 16384}, {6, 16384}}},
	{Orderly, false, []setting{{1, 0}, {2, 0}, {4, 1<<31 - 1}}}, // nginx: ngx_http_proxy_v2_module.c
	{Orderly, false, []setting{{3, 100}, {6, 1 << 16}}},         // SwiftNIO: nioDefaultSettings
	{Orderly, true, []setting{{4, 1 << 24}}},                    // OkHttp
	{Orderly, true, []setting{{4, 1 << 20}}},                    // Vert.x 5
	{Orderly, true, []setting{{2, 0}, {4, 1 << 25}}},            // http2-wrapper: got
	{Orderly, false, []setting{{6, 8192}}},                      // Netty: Reactor Netty, Armeria, Vert.x 4
	{Orderly, true, []setting{{2, 0}, {4, 65535}}},              // .NET: Http2Connection.cs
	{Orderly, true, []setting{{3, 100}, {4, 65535}}},            // nghttp
	{Orderly, true, nil},                                        // Node's node:http2
}

// ClientBySettings returns the kind of a client by the payload of its first SETTINGS frame.
func ClientBySettings(payload []byte) Client {
	sent := make([]setting, 0, maxSettings)
	for id, value := range EachSetting(payload) {
		sent = append(sent, setting{id, value})
	}
	for _, i := range implementations {
		if i.alone && len(sent) != len(i.settings) {
			continue
		}
		if !slices.ContainsFunc(i.settings, func(s setting) bool { return !slices.Contains(sent, s) }) {
			return i.client
		}
	}
	if slices.ContainsFunc(sent, func(s setting) bool { return s.id == settingEnableConnectProtocol }) {
		return Orderly // without meaning in a client's (RFC 8441, 3): Envoy, HAProxy; hyper-h2 has a row
	}
	return 0
}

// Requested returns the kind after a request by gRPC or forwarded by a proxy (X-Forwarded-For), which let requests
// finish, unless the client's SETTINGS say otherwise.
func (c Client) Requested(grpc, forwarded bool) Client {
	if c == 0 && (grpc || forwarded) {
		return Orderly
	}
	return c
}

func (c Client) due(m Moment) (due bool, again time.Duration) {
	switch {
	case c == Orderly:
		return true, 0
	case m.Open > 0 && c == Abrupt:
		return false, 0
	case m.Open > 0:
		left := max(0, patience-m.Closing)
		return left == 0, left
	}
	if left := longRest>>(m.Draining/halfRest) - m.Idle; left > 0 {
		return false, left
	}
	return true, 0
}
