package drain

import (
	"encoding/json"
	"log/slog"
	"os"
	"time"
)

// maxTerminationMessage is what the kubelet reads of a termination message,
// bytes.
const maxTerminationMessage = 4096

// Tell writes the report as one log record and, unless file is empty, into the
// container's termination message.
func (r Report) Tell(log *slog.Logger, file string) {
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
	log.Info("termination report", attrs...)
	if file == "" {
		return
	}
	if err := os.WriteFile(file, r.message(), 0o644); err != nil {
		log.Warn("the termination message could not be written", "file", file, "error", err)
	}
}

// message is the report as JSON, with as many of the conversations
// as fit.
func (r Report) message() []byte {
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
