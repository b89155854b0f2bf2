//go:build unix

package drain_test

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/must"

	"github.com/lastcall-dev/lastcall/drain"
)

// An unread termination message does not delay the exit.
func TestPublishToAnUnreadFIFO(t *testing.T) {
	file := filepath.Join(t.TempDir(), "fifo")
	must.Do(t, syscall.Mkfifo(file, 0o600))
	var log bytes.Buffer
	drain.Report{Verdict: drain.Clean}.Publish(slog.New(slog.NewTextHandler(&log, nil)), file)
	if !strings.Contains(log.String(), "cannot write the termination message") {
		t.Error(log.String())
	}
}
