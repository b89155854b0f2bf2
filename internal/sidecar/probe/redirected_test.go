package probe

import (
	"strings"
	"testing"
)

func TestParseAllRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"{": "must be {", `{"/a": {}}`: "0 of httpGet",
		`{"/a": {"tcpSocket": {"port": "http"}}}`: "must be a number",
		`{"/a": {"tcpSocket": {"port": 0}}}`:      "must be a number",
	} {
		if _, err := ParseAll(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", text, err, want)
		}
	}
	if p, err := ParseAll(""); p != nil || err != nil {
		t.Error(p, err)
	}
}
