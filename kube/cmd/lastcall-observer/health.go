package main

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/lastcall-dev/lastcall/internal/logs"
	"github.com/lastcall-dev/lastcall/internal/sideport"
)

// health is whether the API server answers. An observer that it does not answer is blind, and not ready.
type health struct {
	log  *slog.Logger
	warn logs.Throttle

	mu  sync.Mutex // guards err
	err error
}

func newHealth(log *slog.Logger) *health {
	return &health{log: log, err: errors.New("the pods of the node have not been listed yet")}
}

// answered records the result of a request.
func (h *health) answered(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = err
	if err != nil {
		h.warn.Warn(h.log, time.Minute, "cannot watch the pods of the node; their terminations are observed only when their processes exit", "error", err)
	}
}

func (h *health) ready(w http.ResponseWriter, _ *http.Request) {
	h.mu.Lock()
	err := h.err
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
	mux.Handle("/metrics", sideport.Scrapes(promhttp.HandlerFor(registry, promhttp.HandlerOpts{})))
	return mux
}

// writeLine writes v as JSON on a line of its own.
func writeLine(to io.Writer, v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = to.Write(append(line, '\n'))
	return err
}
