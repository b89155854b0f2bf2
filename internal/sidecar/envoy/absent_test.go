package envoy

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/logs/logstest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

// Where no Envoy runs, the log states at once what Start waits for, and Start fails after the time that is set.
func TestAttachWithoutEnvoy(t *testing.T) {
	log, at := &logstest.Buffer{}, nettest.FreeAddress(t, "127.0.0.1")
	const limit = 300 * time.Millisecond
	began := time.Now()
	_, err := Start(t.Context(), Options{Admin: at, Attach: true, StartTimeout: limit, Log: slog.New(slog.NewTextHandler(log, nil))})
	if took := time.Since(began); err == nil || !strings.Contains(err.Error(), "envoy's admin at "+at) || took < limit {
		t.Errorf("%v after %v", err, took)
	}
	if n := strings.Count(log.String(), "waiting for Envoy to become ready"); n != 1 {
		t.Errorf("%d lines:\n%s", n, log)
	}
}
