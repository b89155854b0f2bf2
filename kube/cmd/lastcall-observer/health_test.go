package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
)

// TestReady: an observer that sees nothing is not ready, and reports the reason.
func TestReady(t *testing.T) {
	denied := fmt.Errorf("enter the network namespace: %w", syscall.EPERM)
	for _, tt := range []struct {
		name   string
		rights error
		before func(*health)
		want   string // of the answer
	}{
		{"just started", nil, func(*health) {}, "not been listed"},
		{"all is well", nil, func(h *health) { h.answered(nil); h.entered(nil) }, "ok"},
		{"a node without other pods", nil, func(h *health) { h.answered(nil) }, "ok"},
		{"no API server", nil, func(h *health) { h.answered(nil); h.entered(nil); h.answered(errors.New("connection refused")) }, "connection refused"},
		{"no capability", errors.New("the capability SYS_ADMIN is missing"), func(h *health) { h.answered(nil); h.entered(nil) }, "SYS_ADMIN"},
		{"no permission", nil, func(h *health) { h.answered(nil); h.entered(denied) }, "operation not permitted"},
		{"a pod that has ended", nil, func(h *health) { h.answered(nil); h.entered(syscall.ENOENT) }, "ok"},
		{"one pod that no process may enter", nil, func(h *health) { h.answered(nil); h.entered(nil); h.entered(denied) }, "ok"},
	} {
		h := newHealth(slog.New(slog.DiscardHandler), tt.rights)
		tt.before(h)
		w := httptest.NewRecorder()
		h.ready(w, nil)
		if !strings.Contains(w.Body.String(), tt.want) || (w.Code == 200) != (tt.want == "ok") {
			t.Errorf("%s: %d %q, want %q", tt.name, w.Code, w.Body.String(), tt.want)
		}
	}
}
