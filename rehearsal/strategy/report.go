package strategy

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/lastcall-dev/lastcall/drain"
)

// Report reads the sidecar's termination message; nil if there is none, because the sidecar was killed.
func (p *Pod) Report() (*drain.Report, error) {
	text, err := os.ReadFile(p.termination)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil //nolint:nilnil // no message is an answer
	case err != nil:
		return nil, fmt.Errorf("read the termination message: %w", err)
	}
	r, ok := drain.ParseMessage(string(text))
	if !ok {
		return nil, fmt.Errorf("the termination message %s is no report: %q", p.termination, text)
	}
	return &r, nil
}
