package logs

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strconv"
	"strings"
	"testing"
)

// hostile is what a client can put into a request: controls of Latin-1 as UTF-8 and as raw bytes, overrides, isolates and
// marks of bidirectional text, invisible characters, a tag beyond U+FFFF.
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
