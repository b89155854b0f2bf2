package gateway

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/lastcall-dev/lastcall/internal/sidecar/sideport"
)

// readiness of a gateway.
type readiness int32

const (
	pending  readiness = iota // not serving yet
	ready                     // serving, or draining with readiness kept
	notReady                  // the listener is closed, or FailReadinessAfter has passed
)

// admin serves probes and scrapes on an address of its own, from the start of Run to its end.
type admin struct {
	state   atomic.Int32
	pending func() string
	ln      net.Listener // nil without an address
	server  *http.Server
	served  chan struct{}
}

// startAdmin listens on address, or nowhere if it is "".
func startAdmin(g *Gateway, address string, awaited func() string) (*admin, error) {
	a := &admin{pending: awaited, served: make(chan struct{})}
	var err error
	if a.ln, err = Listen("--admin", address); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ready", a.ready)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { text(w, http.StatusOK, "ok") })
	mux.Handle("GET /metrics", sideport.Scrapes(g.metrics.handler()))
	a.server = sideport.New(mux, g.log)
	if a.ln == nil {
		close(a.served)
		return a, nil
	}
	go func() { defer close(a.served); _ = a.server.Serve(sideport.Limit(a.ln)) }()
	return a, nil
}

func (a *admin) set(s readiness) { a.state.Store(int32(s)) }

// addr returns where it listens, nil without an address.
func (a *admin) addr() net.Addr {
	if a.ln == nil {
		return nil
	}
	return a.ln.Addr()
}

func (a *admin) close() {
	_ = a.server.Close()
	<-a.served
}

// ready answers as Envoy's admin API does: 200 LIVE, or 503 with Envoy's name of the state and what the gateway waits for.
func (a *admin) ready(w http.ResponseWriter, _ *http.Request) {
	switch readiness(a.state.Load()) {
	case ready:
		text(w, http.StatusOK, "LIVE")
	case notReady:
		text(w, http.StatusServiceUnavailable, "DRAINING")
	default:
		word := "PRE_INITIALIZING"
		if what := a.pending(); what != "" {
			word = fmt.Sprintf("%s: %s", word, what)
		}
		text(w, http.StatusServiceUnavailable, word)
	}
}

func text(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "text/plain; charset=UTF-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body+"\n")
}
