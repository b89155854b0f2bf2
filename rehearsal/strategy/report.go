package strategy

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Report is the part of a sidecar's termination message that the rehearsal reads.
type Report struct {
	Verdict    string         `json:"verdict"`
	Trigger    string         `json:"trigger,omitempty"`
	DurationMS int64          `json:"duration_ms"`
	Open       []Conversation `json:"open,omitempty"`
}

// Conversation is a connection or request that the last call has ended.
type Conversation struct {
	Peer     string `json:"peer"`
	Protocol string `json:"protocol"`
	Request  string `json:"request,omitempty"`
	AgeMS    int64  `json:"age_ms"`
	Ending   string `json:"ending,omitempty"`
}

// Report reads the sidecar's termination message; nil if there is none, because the sidecar was killed.
func (p *Pod) Report() (*Report, error) { return readReport(p.termination) }

func readReport(file string) (*Report, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // no message is an answer
	}
	if err != nil {
		return nil, fmt.Errorf("read the termination message: %w", err)
	}
	var r Report
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("parse the termination message %s: %w", file, err)
	}
	return &r, nil
}
