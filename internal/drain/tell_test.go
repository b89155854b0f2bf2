package drain_test

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/drain"
)

// The kubelet reads 4096 bytes: what does not fit is left out, and it stays JSON.
func TestTerminationMessageFits(t *testing.T) {
	report := drain.Report{Verdict: drain.Cut}
	for range 500 {
		c := drain.Conversation{Peer: "10.0.0.1:1", Protocol: "http/1.1", Request: "GET /" + strings.Repeat("x", 200)}
		report.Open, report.HeldBy = append(report.Open, c), append(report.HeldBy, c)
		report.Faults = append(report.Faults, strings.Repeat("y", 100))
	}
	file := filepath.Join(t.TempDir(), "termination-log")
	report.Tell(slog.New(slog.DiscardHandler), file)
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(b) > 4096 || !json.Valid(b) || !strings.Contains(string(b), `"verdict":"cut"`) {
		t.Errorf("%d bytes, valid %v", len(b), json.Valid(b))
	}
}
