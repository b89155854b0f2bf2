package accesslog

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/logs"
)

// stuckWriter blocks until free is closed.
type stuckWriter struct{ free chan struct{} }

func (w stuckWriter) Write(p []byte) (int, error) { <-w.free; return len(p), nil }

// If the writer hangs, lines are dropped; memory stays bounded and callers do not block.
func TestWriterHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := stuckWriter{make(chan struct{})}
		l := New(w, Text)
		e := &Entry{Path: "/" + strings.Repeat("x", 1<<20)}
		l.Write(e)
		synctest.Wait() // the writer has it
		for range 10 {
			l.Write(e)
		}
		if lost := l.Lost(); lost != 6 {
			t.Errorf("%d lines lost, with room for 4", lost)
		}
		began := time.Now()
		l.Close()
		if took := time.Since(began); took != logs.CloseTime {
			t.Errorf("Close took %v", took)
		}
		if lost := l.Lost(); lost != 10 {
			t.Errorf("%d lines lost", lost)
		}
		l.Write(e) // after Close
		close(w.free)
	})
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestWriterFails(t *testing.T) {
	l := New(fullDisk{}, JSON)
	for range 3 {
		l.Write(&Entry{})
	}
	l.Close()
	if l.Lost() != 3 {
		t.Errorf("%d lines lost", l.Lost())
	}
}
