package logs

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// reader is a log's reader, which may stall or fail.
type reader struct {
	mu      sync.Mutex // guards what follows
	got     bytes.Buffer
	err     error
	stalled chan struct{} // nil: it reads
}

func (r *reader) stall() (resume func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	gate := make(chan struct{})
	r.stalled = gate
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.stalled = nil
		close(gate)
	}
}

func (r *reader) Write(p []byte) (int, error) {
	r.mu.Lock()
	gate := r.stalled
	r.mu.Unlock()
	if gate != nil {
		<-gate
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return 0, r.err
	}
	return r.got.Write(p)
}

func (r *reader) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.got.String()
}

// A reader that stalls costs lines, and neither time nor memory without end. How
// many is logged when it is back, and counted.
func TestStalledReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r reader
		resume := r.stall()
		w := New(&r, 1000)
		log := NewLogger(false, w, slog.LevelInfo)
		began := time.Now()
		log.Info("first")
		synctest.Wait() // it is with the reader
		for range 500 {
			log.Info("line")
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("500 lines took %v", took)
		}
		if n := len(w.buf); n > 1100 {
			t.Errorf("%d bytes wait, with room for 1000", n)
		}
		lost := w.Dropped()
		if lost < 400 || lost >= 500 {
			t.Errorf("%d log lines dropped", lost)
		}
		resume()
		synctest.Wait()
		log.Info("last")
		synctest.Wait()
		if n := strings.Count(r.String(), "msg=line"); uint64(n)+lost != 500 {
			t.Errorf("%d lines were read and %d dropped, of 500", n, lost)
		}
		for _, want := range []string{"msg=first", "msg=last", "log lines dropped"} {
			if strings.Count(r.String(), want) != 1 {
				t.Errorf("%q is not there once:\n%s", want, r.String())
			}
		}
		var m dto.Metric
		if err := w.Metric("own").(prometheus.Metric).Write(&m); err != nil || m.Counter.GetValue() != float64(lost) {
			t.Errorf("the metric says %v, and %d were dropped", &m, lost)
		}
		w.Close()
	})
}

// The end delivers what waits to a reader that reads, and does not wait for one
// that does not.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r reader
		w := New(&r, DefaultBound)
		_, _ = w.Write([]byte("report\n"))
		w.Close()
		if r.String() != "report\n" {
			t.Errorf("the reader got %q", r.String())
		}

		resume := r.stall()
		w = New(&r, DefaultBound)
		_, _ = w.Write([]byte("one\n"))
		synctest.Wait()
		_, _ = w.Write([]byte("two\n"))
		began := time.Now()
		w.Close()
		if took := time.Since(began); took != CloseTime {
			t.Errorf("the end took %v", took)
		}
		_, _ = w.Write([]byte("three\n"))
		if w.Dropped() != 2 {
			t.Errorf("%d log lines dropped", w.Dropped())
		}
		resume()
	})
}

// A log that cannot be written neither stops nor reports its own failures without end.
func TestFailingReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := reader{err: errors.New("no space left on device")}
		w := New(&r, DefaultBound)
		log := NewLogger(true, w, slog.LevelInfo)
		for range 3 {
			log.Info("line")
			synctest.Wait()
		}
		if w.Dropped() != 3 {
			t.Errorf("%d log lines dropped", w.Dropped())
		}
		r.mu.Lock()
		r.err = nil
		r.mu.Unlock()
		log.Info("line")
		synctest.Wait()
		w.Close()
		if strings.Count(r.String(), "\n") != 2 || !strings.Contains(r.String(), `"lines":3`) {
			t.Errorf("the log is\n%s", r.String())
		}
	})
}

func TestLongLine(t *testing.T) {
	var r reader
	w := New(&r, DefaultBound)
	_, _ = w.Write(append(bytes.Repeat([]byte("x"), 1<<20), '\n'))
	w.Close()
	if n := len(r.String()); n > maxLine+10 || !strings.HasSuffix(r.String(), "…\n") {
		t.Errorf("a line of 1 MiB is one of %d bytes", n)
	}
}

// The output of another program arrives in parts; its lines stay complete.
func TestLines(t *testing.T) {
	var r reader
	w := New(&r, DefaultBound)
	l := NewLines(w)
	for _, piece := range []string{"one", " line\ntwo li", "nes\n", strings.Repeat("x", maxLine+5), "\n"} {
		_, _ = l.Write([]byte(piece))
		_, _ = w.Write([]byte("ours\n"))
	}
	w.Close()
	want := "ours\none line\nours\ntwo lines\nours\n" + strings.Repeat("x", maxLine) + "\nours\nxxxxx\nours\n"
	if r.String() != want {
		t.Errorf("%.200q", r.String())
	}
}

func TestThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))
		var once Throttle
		for range 2500 {
			once.Warn(log, time.Second, "refused", "from", "10.0.0.1")
			time.Sleep(time.Millisecond)
		}
		once.Warn(log, time.Second, "another")
		want := "level=WARN msg=refused from=10.0.0.1\n" +
			"level=WARN msg=refused from=10.0.0.1 suppressed=999\n" +
			"level=WARN msg=refused from=10.0.0.1 suppressed=999\n" +
			"level=WARN msg=another\n"
		if out.String() != want {
			t.Errorf("the log is\n%s", out.String())
		}
	})
}
