package agent

import (
	"encoding/json"
	"os"
	"time"

	"github.com/lastcall-dev/lastcall/internal/drain"
)

// maxTerminationMessage is what the kubelet reads of a termination message,
// bytes.
const maxTerminationMessage = 4096

// tellReport writes the report as one log record and as the container's
// termination message.
func (a *agent) tellReport(r drain.Report) {
	attrs := []any{
		"verdict", string(r.Verdict),
		"mode", r.Mode,
		"trigger", r.Trigger,
		"duration_ms", time.Duration(r.Duration).Milliseconds(),
		"phases", asJSON{r.Phases},
		"late", r.Late,
	}
	for _, list := range []struct {
		name  string
		value any
		n     int
	}{
		{"held_by", r.HeldBy, len(r.HeldBy)},
		{"open", r.Open, len(r.Open)},
		{"faults", r.Faults, len(r.Faults)},
	} {
		if list.n > 0 {
			attrs = append(attrs, list.name, asJSON{list.value})
		}
	}
	a.log.Info("termination report", attrs...)
	if a.TerminationLog == "" {
		return
	}
	if err := os.WriteFile(a.TerminationLog, terminationMessage(r), 0o644); err != nil {
		a.log.Warn("the termination message could not be written", "file", a.TerminationLog, "error", err)
	}
}

// terminationMessage is the report as JSON, with as many of the conversations
// as fit.
func terminationMessage(r drain.Report) []byte {
	for {
		b, err := json.Marshal(r)
		if err != nil {
			return []byte(r.Verdict)
		}
		if len(b) <= maxTerminationMessage {
			return b
		}
		switch {
		case len(r.HeldBy) > 0:
			r.HeldBy = r.HeldBy[:len(r.HeldBy)/2]
		case len(r.Open) > 0:
			r.Open = r.Open[:len(r.Open)/2]
		case len(r.Faults) > 0:
			r.Faults = r.Faults[:len(r.Faults)/2]
		default:
			return b[:maxTerminationMessage]
		}
	}
}

// asJSON reads the same in text logs as in JSON logs.
type asJSON struct{ v any }

func (j asJSON) MarshalJSON() ([]byte, error) { return json.Marshal(j.v) }
func (j asJSON) MarshalText() ([]byte, error) { return json.Marshal(j.v) }
