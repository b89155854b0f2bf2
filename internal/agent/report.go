package agent

import (
	"encoding/json"
	"os"

	"github.com/lastcall-dev/lastcall/internal/drain"
)

// maxTerminationMessage is what the kubelet reads of a termination message,
// bytes.
const maxTerminationMessage = 4096

// tellReport writes the report as one log record and as the container's
// termination message.
func (a *agent) tellReport(r drain.Report) {
	a.log.Info("termination report",
		"verdict", string(r.Verdict),
		"mode", r.Mode,
		"trigger", r.Trigger,
		"duration_ms", r.Duration,
		"phases", asJSON{r.Phases},
		"late", r.Late,
		"held_by", asJSON{r.HeldBy},
		"open", asJSON{r.Open},
		"faults", asJSON{r.Faults},
	)
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
