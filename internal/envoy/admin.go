package envoy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"
)

// Admin is Envoy's admin API.
type Admin struct {
	address string
	base    string
	client  *http.Client
}

// NewAdmin is the admin API at address: host:port (IPv4 or IPv6), or unix:PATH.
func NewAdmin(address string) (*Admin, error) {
	var d net.Dialer
	network, target := "tcp", address
	base := "http://" + address
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		network, target, base = "unix", path, "http://envoy"
	} else if _, _, err := net.SplitHostPort(address); err != nil {
		return nil, fmt.Errorf("address of Envoy's admin %q: %w; accepted are host:port and unix:PATH", address, err)
	}
	return &Admin{
		address: address,
		base:    base,
		client: &http.Client{Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return d.DialContext(ctx, network, target)
			},
			// A connection to the admin counts in Envoy's own numbers and is
			// cheap to make on loopback: none is kept.
			DisableKeepAlives: true,
		}},
	}, nil
}

// maxAnswer bounds an answer, bytes. The largest we ask for is the dump of a few
// thousand listeners.
const maxAnswer = 256 << 20

// StatusError is an answer other than 200.
type StatusError struct {
	Request string // method and path
	Status  int
	Body    string // its beginning
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("envoy's admin: %s: unexpected status %d: %s", e.Request, e.Status, e.Body)
}

func (a *Admin) call(ctx context.Context, method, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, a.base+path, nil)
	if err != nil {
		return nil, fmt.Errorf("envoy's admin: %w", err)
	}
	resp, err := a.client.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // the URL stands in ours
		}
		return nil, fmt.Errorf("envoy's admin at %s: %s %s: %w", a.address, method, path, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("envoy's admin at %s: %s %s: read the answer: %w", a.address, method, path, err)
	}
	if resp.StatusCode != http.StatusOK {
		return body, &StatusError{method + " " + path, resp.StatusCode, string(bytes.TrimSpace(body[:min(len(body), 200)]))}
	}
	return body, nil
}

// Ready is nil when Envoy serves (LIVE).
func (a *Admin) Ready(ctx context.Context) error {
	_, err := a.call(ctx, http.MethodGet, "/ready")
	return err
}

// DrainListeners says goodbye. inboundOnly leaves listeners of other directions
// alone; with skipExit the listeners never stop, with graceful they stop after
// --drain-time-s, with neither at once.
func (a *Admin) DrainListeners(ctx context.Context, inboundOnly, graceful, skipExit bool) error {
	var query []string
	for _, q := range []struct {
		name string
		on   bool
	}{{"inboundonly", inboundOnly}, {"graceful", graceful}, {"skip_exit", skipExit}} {
		if q.on {
			query = append(query, q.name)
		}
	}
	path := "/drain_listeners"
	if len(query) > 0 {
		path += "?" + strings.Join(query, "&")
	}
	_, err := a.call(ctx, http.MethodPost, path)
	return err
}

// HealthcheckFail makes Envoy fail its health checks, or pass them again.
func (a *Admin) HealthcheckFail(ctx context.Context, fail bool) error {
	path := "/healthcheck/ok"
	if fail {
		path = "/healthcheck/fail"
	}
	_, err := a.call(ctx, http.MethodPost, path)
	return err
}

// Quit makes Envoy leave; it flushes its logs and stats first.
func (a *Admin) Quit(ctx context.Context) error {
	_, err := a.call(ctx, http.MethodPost, "/quitquitquit")
	return err
}

// Stats asks for the stats whose names match filter (RE2, anywhere in the
// name), as text. With usedOnly those that were never written are left out.
func (a *Admin) Stats(ctx context.Context, filter string, usedOnly bool) ([]byte, error) {
	path := "/stats?"
	if usedOnly {
		path += "usedonly&"
	}
	return a.call(ctx, http.MethodGet, path+"filter="+url.QueryEscape(filter))
}

// Listener is one of Envoy's listeners.
type Listener struct {
	Name      string
	Addresses []netip.AddrPort
	Direction string // INBOUND, OUTBOUND, or UNSPECIFIED

	// The stat prefixes of its HTTP connection managers and TCP proxies; nil
	// when they are not known.
	HTTP, TCP []string
	Known     bool // HTTP and TCP are complete
}

// Config is what of Envoy's configuration tells what counts.
type Config struct {
	Listeners []Listener
	Matcher   *StatsMatcher // nil: every stat is there
}

// socketAddress is envoy.config.core.v3.Address, as far as it is a socket's.
type socketAddress struct {
	SocketAddress *struct {
		Address string `json:"address"`
		Port    uint16 `json:"port_value"`
	} `json:"socket_address"`
}

func (s socketAddress) addrPort() (netip.AddrPort, bool) {
	if s.SocketAddress == nil {
		return netip.AddrPort{}, false // internal, or a unix socket
	}
	addr, err := netip.ParseAddr(s.SocketAddress.Address)
	if err != nil {
		return netip.AddrPort{}, false
	}
	return netip.AddrPortFrom(addr, s.SocketAddress.Port), true
}

// dumpedListener is envoy.config.listener.v3.Listener, as far as we need it.
type dumpedListener struct {
	Name      string          `json:"name"`
	StatName  string          `json:"stat_prefix"`
	Address   socketAddress   `json:"address"`
	Direction string          `json:"traffic_direction"`
	Chains    []dumpedChain   `json:"filter_chains"`
	Default   *dumpedChain    `json:"default_filter_chain"`
	More      []moreAddresses `json:"additional_addresses"`
}

type moreAddresses struct {
	Address socketAddress `json:"address"`
}

type dumpedChain struct {
	Filters []struct {
		Config struct {
			Type       string `json:"@type"`
			StatPrefix string `json:"stat_prefix"`
		} `json:"typed_config"`
	} `json:"filters"`
}

const (
	typeHTTP = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
	typeTCP  = "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy"
)

func (d *dumpedListener) listener() Listener {
	l := Listener{Name: d.Name, Direction: d.Direction, Known: true}
	if l.Direction == "" {
		l.Direction = "UNSPECIFIED"
	}
	for _, a := range append([]moreAddresses{{d.Address}}, d.More...) {
		if at, ok := a.Address.addrPort(); ok {
			l.Addresses = append(l.Addresses, at)
		}
	}
	chains := d.Chains
	if d.Default != nil {
		chains = append(chains, *d.Default)
	}
	for _, chain := range chains {
		for _, filter := range chain.Filters {
			switch filter.Config.Type {
			case typeHTTP:
				l.HTTP = append(l.HTTP, filter.Config.StatPrefix)
			case typeTCP:
				l.TCP = append(l.TCP, filter.Config.StatPrefix)
			}
		}
	}
	return l
}

// Config asks for the listeners and the stats matcher. A configuration that
// Envoy does not show (no config_dump) gives the listeners' addresses alone.
func (a *Admin) Config(ctx context.Context) (Config, error) {
	c, err := a.dump(ctx)
	if err == nil {
		return c, nil
	}
	c, listErr := a.list(ctx)
	if listErr != nil {
		return Config{}, errors.Join(err, listErr)
	}
	return c, nil
}

func (a *Admin) dump(ctx context.Context) (c Config, err error) {
	for _, part := range []string{"resource=static_listeners", "resource=dynamic_listeners", "mask=bootstrap.stats_config"} {
		b, err := a.call(ctx, http.MethodGet, "/config_dump?"+part)
		if err != nil {
			return c, err
		}
		var dump struct {
			Configs []struct {
				Listener    *dumpedListener `json:"listener"` // static
				ActiveState *struct {
					Listener dumpedListener `json:"listener"`
				} `json:"active_state"` // dynamic
				Bootstrap *struct {
					StatsConfig struct {
						Matcher *StatsMatcher `json:"stats_matcher"`
					} `json:"stats_config"`
				} `json:"bootstrap"`
			} `json:"configs"`
		}
		if err := json.Unmarshal(b, &dump); err != nil {
			return c, fmt.Errorf("envoy's admin at %s: read its configuration: %w", a.address, err)
		}
		for _, config := range dump.Configs {
			switch {
			case config.Listener != nil:
				c.Listeners = append(c.Listeners, config.Listener.listener())
			case config.ActiveState != nil:
				c.Listeners = append(c.Listeners, config.ActiveState.Listener.listener())
			case config.Bootstrap != nil:
				c.Matcher = config.Bootstrap.StatsConfig.Matcher
			}
		}
	}
	return c, nil
}

// list asks for the addresses of the listeners.
func (a *Admin) list(ctx context.Context) (c Config, err error) {
	b, err := a.call(ctx, http.MethodGet, "/listeners?format=json")
	if err != nil {
		return c, err
	}
	var list struct {
		Statuses []struct {
			Name    string          `json:"name"`
			Address socketAddress   `json:"local_address"`
			More    []socketAddress `json:"additional_local_addresses"`
		} `json:"listener_statuses"`
	}
	if err := json.Unmarshal(b, &list); err != nil {
		return c, fmt.Errorf("envoy's admin at %s: read its listeners: %w", a.address, err)
	}
	for _, s := range list.Statuses {
		l := Listener{Name: s.Name, Direction: "UNSPECIFIED"}
		for _, address := range append([]socketAddress{s.Address}, s.More...) {
			if at, ok := address.addrPort(); ok {
				l.Addresses = append(l.Addresses, at)
			}
		}
		c.Listeners = append(c.Listeners, l)
	}
	return c, nil
}

// awaitReady asks again and again until Envoy serves, or ctx or stop ends it.
func (a *Admin) awaitReady(ctx context.Context, stop <-chan struct{}) error {
	for {
		attempt, cancel := context.WithTimeout(ctx, time.Second)
		err := a.Ready(attempt)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-stop:
			return errors.New("envoy has ended before it was ready")
		case <-ctx.Done():
			return fmt.Errorf("envoy does not become ready: %w", err)
		}
	}
}
