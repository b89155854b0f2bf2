package main

import (
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/lastcall-dev/lastcall/internal/sidecar/logs"
	"github.com/lastcall-dev/lastcall/internal/sidecar/statusserver"
)

// health is the state of an observer's requirements: rights, and an API server that answers. Without one it is blind,
// and not ready.
type health struct {
	log    *slog.Logger
	warn   logs.Throttle
	rights error // the rights that it lacks from its start; nil: none

	mu      sync.Mutex // guards the fields below
	api     error      // of the last request
	entry   error      // of the last network namespace that it was not permitted to enter
	hasSeen bool       // it has entered one
}

// newHealth returns the health of an observer with these rights.
func newHealth(log *slog.Logger, rights error) *health {
	return &health{log: log, rights: rights, api: errors.New("the pods of the node have not been listed yet")}
}

// answered records the result of a request.
func (h *health) answered(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.api = err
	if err != nil {
		h.warn.Warn(h.log, time.Minute,
			"cannot watch the pods of the node; their terminations are observed only when their processes exit", "error", err)
	}
}

// entered records the result of entering a pod's network namespace. One that has ended meanwhile says nothing about
// rights, and after a first success neither does a pod whose runtime denies it to every process.
func (h *health) entered(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err == nil:
		h.hasSeen, h.entry = true, nil
	case errors.Is(err, fs.ErrPermission) && !h.hasSeen:
		h.entry = err
	}
}

func (h *health) ready(w http.ResponseWriter, _ *http.Request) {
	h.mu.Lock()
	err := errors.Join(h.rights, h.api, h.entry)
	h.mu.Unlock()
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	_, _ = io.WriteString(w, "ok\n")
}

func (h *health) handler(registry *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("/readyz", h.ready)
	scrape := promhttp.HandlerFor(registry, promhttp.HandlerOpts{DisableCompression: true}) // a compressor takes 0.8 MB
	mux.Handle("/metrics", statusserver.Scrapes(scrape))
	return mux
}
