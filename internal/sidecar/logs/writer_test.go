package logs

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/lastcall-dev/lastcall/internal/must"
)

// reader is a log's reader, which may stall or fail.
type reader struct {
	mu      sync.Mutex // guards the fields below
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

// A FIFO is opened at once although nothing reads it. Its lines reach the reader
// that comes later, and the one after that.
func TestFIFOWithoutReader(t *testing.T) {
	name := filepath.Join(t.TempDir(), "log")
	must.Do(t, syscall.Mkfifo(name, 0o600))
	file, err := OpenFile(name)
	must.Do(t, err)
	defer file.Close()
	w := New(file, DefaultBound)
	defer w.Close()
	for _, want := range []string{"before there is a reader\n", "after the reader has gone\n"} {
		_, _ = w.Write([]byte(want))
		in, err := os.Open(name)
		must.Do(t, err)
		if got, err := bufio.NewReader(io.LimitReader(in, int64(len(want)))).ReadString('\n'); got != want {
			t.Errorf("the reader got %q, %v", got, err)
		}
		_ = in.Close()
	}
}

func TestOpenFile(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "log")
	for _, line := range []string{"one\n", "two\n"} { // appended
		file, err := OpenFile(name)
		must.Do(t, err)
		w := New(file, DefaultBound)
		_, _ = w.Write([]byte(line))
		w.Close()
		_ = file.Close()
	}
	if got, err := os.ReadFile(name); string(got) != "one\ntwo\n" {
		t.Errorf("the file has %q, %v", got, err)
	}
	if _, err := OpenFile(filepath.Join(dir, "none", "log")); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("a folder that is not there: %v", err)
	}
}

// hostile has characters that a client can put into a request: controls of Latin-1 as UTF-8 and as raw bytes,
// overrides, isolates and marks of bidirectional text, invisible characters, a tag beyond U+FFFF.
const hostile = "a\u0085\u009b31m\x9b\u202e\u202a\u2066\u2069\u200e\u200f\u061c\u2028\U000e0041\x7f\"\\é日"

func TestAppendEscapes(t *testing.T) {
	const text = `a\u0085\u009b31m\x9b\u202e\u202a\u2066\u2069\u200e\u200f\u061c\u2028\U000e0041\x7f\"\\é日`
	if got := string(AppendText(nil, hostile)); got != text {
		t.Errorf("text: got  %s\nwant %s", got, text)
	}
	got := AppendJSON(nil, hostile)
	wantPrintable(t, string(got))
	var back string
	if err := json.Unmarshal([]byte(`"`+string(got)+`"`), &back); err != nil || back != strings.ToValidUTF8(hostile, "\uFFFD") {
		t.Errorf("JSON: %s is %q, %v", got, back, err)
	}
}

// The program's own log has clients' bytes too: the requests in a report, the names in a ClientHello.
func TestLoggerEscapes(t *testing.T) {
	for _, asJSON := range []bool{false, true} {
		var out bytes.Buffer
		w := New(&out, DefaultBound)
		NewLogger(asJSON, w, slog.LevelInfo).Info("cut", "request", "GET /"+hostile)
		w.Close()
		line := strings.TrimSuffix(out.String(), "\n")
		wantPrintable(t, line)
		var members map[string]string
		if err := json.Unmarshal([]byte(line), &members); asJSON && (err != nil || members["request"] != "GET /"+strings.ToValidUTF8(hostile, "\uFFFD")) {
			t.Errorf("%v, %q", err, members)
		}
	}
}

func wantPrintable(t *testing.T, line string) {
	t.Helper()
	for _, r := range line {
		if !strconv.IsPrint(r) {
			t.Errorf("%q contains %U", line, r)
		}
	}
}
