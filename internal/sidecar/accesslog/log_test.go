package accesslog

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

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

// Client input cannot end a field or a line.
func TestTextIsEscaped(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)
	e := Entry{
		Began: began, FirstByte: began.Add(2 * time.Millisecond), Method: "GET", Path: "/a\"b", Protocol: "HTTP/1.1",
		UserAgent: "x\n\\", Cluster: "inbound", Route: "default", Upstream: "127.0.0.1:8080", ServerName: "shop",
		Received: 3, Sent: 4, Status: 200, Outcome: ViaUpstream,
	}
	want := `[2026-01-02T03:04:05.006Z] "GET /a\"b HTTP/1.1" 200 - via_upstream - "-" 3 4 7 2 "-" "x\x0a\\" "-" "-" "127.0.0.1:8080" inbound - - - shop default` + "\n"
	if got := string(e.AppendText(nil, began.Add(7*time.Millisecond))); got != want {
		t.Errorf("got  %swant %s", got, want)
	}
	e = Entry{Began: began, Outcome: Before(FlagConnectFailed, ReasonConnectFailed), UpstreamFailure: "delayed_connect_error"}
	want = `[2026-01-02T03:04:05.006Z] "- - -" 0 UF upstream_reset_before_response_started{remote_connection_failure} - "delayed_connect_error" 0 0 0 - "-" "-" "-" "-" "-" - - - - - -` + "\n"
	if got := string(e.AppendText(nil, began)); got != want {
		t.Errorf("got  %swant %s", got, want)
	}
}

// What controls a terminal, or turns the text of a line around, is escaped.
func TestUnprintableIsEscaped(t *testing.T) {
	e := Entry{UserAgent: "a\u0085\x9b31m", Authority: "\u202eb\u2066\u061c\u200e"}
	for _, line := range [][]byte{e.AppendText(nil, time.Now()), e.AppendJSON(nil, time.Now())} {
		for _, r := range strings.TrimSuffix(string(line), "\n") {
			if r != utf8.RuneError && !strconv.IsPrint(r) {
				t.Errorf("%U in %q", r, line)
			}
		}
	}
	if line := e.AppendText(nil, time.Now()); !strings.Contains(string(line), `"a\u0085\x9b31m"`) {
		t.Errorf("%q", line)
	}
}

// Each line is valid JSON, whatever bytes the client sent; TLS adds its members.
func TestJSONIsValid(t *testing.T) {
	for _, e := range []Entry{{Path: "/a\"b\x80\x00"}, {HasTLS: true, TLSVersion: "TLS 1.3"}} {
		var got map[string]any
		if err := json.Unmarshal(e.AppendJSON(nil, time.Now()), &got); err != nil {
			t.Fatal(err)
		}
		_, hasTLS := got["downstream_tls_version"]
		if e.Path != "" && got["path"] != "/a\"b\uFFFD\x00" || hasTLS != e.HasTLS || got["method"] != nil || got["response_flags"] != "-" {
			t.Errorf("%v", got)
		}
	}
}
