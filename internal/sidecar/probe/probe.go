// Package probe asks an app in this pod as the kubelet's probes do.
package probe

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/tcp"
)

// Probe is a probe as in a pod's manifest. It reaches the app on loopback.
type Probe struct {
	HTTPGet          *HTTPGet   `json:"httpGet,omitempty"`
	TCPSocket        *TCPSocket `json:"tcpSocket,omitempty"`
	GRPC             *GRPC      `json:"grpc,omitempty"`
	Exec             *Exec      `json:"exec,omitempty"`
	TimeoutSeconds   int        `json:"timeoutSeconds,omitempty"`
	PeriodSeconds    int        `json:"periodSeconds,omitempty"`
	FailureThreshold int        `json:"failureThreshold,omitempty"`
}

// HTTPGet is a probe by a request.
type HTTPGet struct {
	Path        string   `json:"path,omitempty"`
	Port        Port     `json:"port"`
	Scheme      string   `json:"scheme,omitempty"`
	HTTPHeaders []Header `json:"httpHeaders,omitempty"`
}

// Header is a header field of HTTPGet.
type Header struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// TCPSocket is a probe by a connection.
type TCPSocket struct {
	Port Port `json:"port"`
}

// GRPC is a probe by gRPC's health service.
type GRPC struct {
	Port    Port   `json:"port"`
	Service string `json:"service,omitempty"`
}

// Exec is a probe by a program of the app's container.
type Exec struct {
	Command []string `json:"command"`
}

// Port is a number, possibly in quotes.
type Port uint16

// UnmarshalJSON reads 8080 and "8080". The injector has to resolve names.
func (p *Port) UnmarshalJSON(b []byte) error {
	n, err := strconv.ParseUint(strings.Trim(string(b), `"`), 10, 16)
	if err != nil || n == 0 {
		return fmt.Errorf("port %s: must be a number, 1 to 65535", b)
	}
	*p = Port(n)
	return nil
}

func (p Port) local() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(int(p))) }

// Validate returns an error unless the probe has exactly one way to ask.
func (p *Probe) Validate() error {
	if p == nil {
		return errors.New("the probe is null")
	}
	kinds := 0
	for _, there := range []bool{p.HTTPGet != nil, p.TCPSocket != nil, p.GRPC != nil, p.Exec != nil} {
		if there {
			kinds++
		}
	}
	if kinds != 1 {
		return fmt.Errorf("the probe has %d of httpGet, tcpSocket, grpc and exec: must be exactly one", kinds)
	}
	if p.Exec != nil && len(p.Exec.Command) == 0 {
		return errors.New("the probe's exec has no command")
	}
	return nil
}

// Timeout is Kubernetes' default if it is not set.
func (p *Probe) Timeout() time.Duration { return time.Duration(max(p.TimeoutSeconds, 1)) * time.Second }

// Source is the address from which Check asks, by which a data plane recognises its connections.
var Source = netip.MustParseAddr("127.76.67.1")

// Check runs the probe once, and returns an error unless it succeeds as the kubelet counts it.
func (p *Probe) Check(ctx context.Context) error {
	code, err := p.run(ctx, "lastcall", DialFromSource)
	if err == nil && (code < http.StatusOK || code >= http.StatusBadRequest) {
		err = fmt.Errorf("the app answered the probe with %d %s", code, http.StatusText(code))
	}
	return err
}

// Dial is net.Dialer's DialContext.
type Dial = func(ctx context.Context, network, address string) (net.Conn, error)

// DialFromSource connects from Source, and from any address to an app that listens on ::1 alone.
func DialFromSource(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(Source, 0))}
	if conn, err := d.DialContext(ctx, network, address); err == nil {
		return conn, nil
	}
	return tcp.DialLoopback(ctx, network, address)
}

// Run runs the probe once, within its timeout, and returns the app's status code; 200 for a probe without one.
func (p *Probe) Run(ctx context.Context, userAgent string) (int, error) {
	return p.run(ctx, userAgent, tcp.DialLoopback)
}

func (p *Probe) run(ctx context.Context, userAgent string, dial Dial) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, p.Timeout())
	defer cancel()
	switch {
	case p.TCPSocket != nil:
		conn, err := dial(ctx, "tcp", p.TCPSocket.Port.local())
		if err != nil {
			return 0, err
		}
		return http.StatusOK, conn.Close()
	case p.GRPC != nil:
		return http.StatusOK, checkHealth(ctx, p.GRPC.Port.local(), p.GRPC.Service, dial)
	case p.Exec != nil:
		cmd := exec.CommandContext(ctx, p.Exec.Command[0], p.Exec.Command[1:]...) //nolint:gosec // from the manifest
		cmd.WaitDelay = 100 * time.Millisecond                                    // a descendant may keep the output open
		if err := cmd.Run(); err != nil {
			return 0, fmt.Errorf("run the probe %s: %w", p.Exec.Command[0], err)
		}
		return http.StatusOK, nil
	}
	return p.get(ctx, userAgent, dial)
}

func (p *Probe) get(ctx context.Context, userAgent string, dial Dial) (int, error) {
	scheme := "http"
	if strings.EqualFold(p.HTTPGet.Scheme, "https") {
		scheme = "https"
	}
	target, err := url.Parse(scheme + "://" + p.HTTPGet.Port.local() + "/" + strings.TrimPrefix(p.HTTPGet.Path, "/"))
	if err != nil {
		return 0, err
	}
	header := http.Header{"User-Agent": {userAgent}}
	for _, h := range p.HTTPGet.HTTPHeaders {
		if strings.EqualFold(h.Name, "host") {
			header.Del(h.Name) // the last one counts
		}
		header.Add(h.Name, h.Value)
	}
	return Get(ctx, target.String(), header, dial)
}

// Get requests a page as the kubelet does: certificates are not verified, and a redirect is a result. The header's Host
// is the request's. It returns the status code after at most 10 KiB of the body.
func Get(ctx context.Context, target string, header http.Header, dial Dial) (int, error) {
	code, _, err := Fetch(ctx, target, header, dial, 10<<10) // the kubelet reads as much
	return code, err
}

// Fetch is Get, and returns the beginning of the body, most bytes of it.
func Fetch(ctx context.Context, target string, header http.Header, dial Dial, most int64) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return 0, nil, err
	}
	req.Host = cmp.Or(header.Get("Host"), req.Host)
	req.Header = header
	transport := &http.Transport{
		DialContext:       dial,
		DisableKeepAlives: true,                                  // a probe checks that a new connection can be opened
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // as the kubelet's own probes do
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, most))
	return resp.StatusCode, body, err
}
