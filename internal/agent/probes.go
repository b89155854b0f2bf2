package agent

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sideport"
	"github.com/lastcall-dev/lastcall/internal/tcp"
)

// Probes are the app's probes and httpGet hooks that an injector redirects to the status port, by their path there, for
// example /app-health/app/readyz. They reach the app on loopback, without capture and TLS, and do not count as traffic.
type Probes map[string]probe

// probe is a probe as in a pod's manifest.
type probe struct {
	HTTPGet *struct {
		Path        string `json:"path"`
		Port        port   `json:"port"`
		Scheme      string `json:"scheme"`
		HTTPHeaders []struct {
			Name  string `json:"name"`
			Value string `json:"value"`
		} `json:"httpHeaders"`
	} `json:"httpGet"`
	TCPSocket *struct {
		Port port `json:"port"`
	} `json:"tcpSocket"`
	GRPC *struct {
		Port    port   `json:"port"`
		Service string `json:"service"`
	} `json:"grpc"`
	TimeoutSeconds int `json:"timeoutSeconds"`
}

// port is a number, possibly in quotes.
type port uint16

// UnmarshalJSON reads 8080 and "8080". The injector has to resolve names.
func (p *port) UnmarshalJSON(b []byte) error {
	n, err := strconv.ParseUint(strings.Trim(string(b), `"`), 10, 16)
	if err != nil || n == 0 {
		return fmt.Errorf("port %s: must be a number, 1 to 65535", b)
	}
	*p = port(n)
	return nil
}

// ParseProbes reads ISTIO_KUBE_APP_PROBERS: an object of paths and probes. An empty text has none.
func ParseProbes(text string) (Probes, error) {
	if text == "" {
		return nil, nil
	}
	var p Probes
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return nil, fmt.Errorf(`read ISTIO_KUBE_APP_PROBERS: %w; must be {"/app-health/NAME/readyz": {"httpGet": {"path": "/", "port": 8080}}, …}`, err)
	}
	for path, one := range p {
		kinds := 0
		for _, there := range []bool{one.HTTPGet != nil, one.TCPSocket != nil, one.GRPC != nil} {
			if there {
				kinds++
			}
		}
		if kinds != 1 {
			return nil, fmt.Errorf("read ISTIO_KUBE_APP_PROBERS: %s has %d of httpGet, tcpSocket and grpc: must be exactly one", path, kinds)
		}
	}
	return p, nil
}

// ServeHTTP responds as the app does. A probe that fails to reach the app is a 500, as in Istio's agent.
func (p Probes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	one, ok := p[r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	timeout := time.Duration(max(one.TimeoutSeconds, 1)) * time.Second // Kubernetes' default is 1 s
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(timeout + sideport.WriteTime))
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	code, err := one.run(ctx, r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(code)
}

func (p *probe) run(ctx context.Context, r *http.Request) (int, error) {
	switch {
	case p.TCPSocket != nil:
		conn, err := tcp.DialLoopback(ctx, "tcp", p.TCPSocket.Port.local())
		if err != nil {
			return 0, err
		}
		return http.StatusOK, conn.Close()
	case p.GRPC != nil:
		return http.StatusOK, checkHealth(ctx, p.GRPC.Port.local(), p.GRPC.Service)
	}
	return p.get(ctx, r)
}

func (p port) local() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(int(p))) }

// probeTransport keeps no connection: a probe checks that a new one can be opened.
var probeTransport = &http.Transport{
	DialContext:       tcp.DialLoopback,
	DisableKeepAlives: true,
	TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // as the kubelet's own probes do
}

func (p *probe) get(ctx context.Context, r *http.Request) (int, error) {
	scheme := "http"
	if strings.EqualFold(p.HTTPGet.Scheme, "https") {
		scheme = "https"
	}
	target, err := url.Parse(scheme + "://" + p.HTTPGet.Port.local() + "/" + strings.TrimPrefix(p.HTTPGet.Path, "/"))
	if err != nil {
		return 0, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set("User-Agent", r.UserAgent())
	for _, h := range p.HTTPGet.HTTPHeaders {
		if strings.EqualFold(h.Name, "host") {
			req.Host = h.Value
			continue
		}
		req.Header.Add(h.Name, h.Value)
	}
	resp, err := probeTransport.RoundTrip(req) // a redirect is a result, as for the kubelet within one host
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 10<<10)) // the kubelet reads as much
	return resp.StatusCode, nil
}
