package printable

import (
	"bytes"
	"encoding/json"
	"testing"
)

// What a terminal obeys, and what is not seen: C0, C1, DEL, marks of bidirectional text, a tag, a zero width space.
const harmful = "\x1b[2J\u009b31m\x7f\u202egnp\u2066\u200b\U000e0041"

func TestText(t *testing.T) {
	if got, want := Text("a\n\""+harmful), `a\n"\x1b[2J\u009b31m\x7f\u202egnp\u2066\u200b\U000e0041`; got != want {
		t.Errorf("got %q", got)
	}
	if got := Lines("a\nb\u202e"); got != "a\nb\\u202e" {
		t.Errorf("got %q", got)
	}
}

func TestJSON(t *testing.T) {
	var out bytes.Buffer
	e := json.NewEncoder(JSONWriter(&out))
	e.SetIndent("", "  ")
	value := map[string]string{"path": "/ü" + harmful}
	if err := e.Encode(value); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), "{\n  \"path\": \"/ü\\u001b[2J\\u009b31m\\u007f\\u202egnp\\u2066\\u200b\\udb40\\udc41\"\n}\n"; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	var back map[string]string
	if err := json.Unmarshal(out.Bytes(), &back); err != nil || back["path"] != value["path"] {
		t.Errorf("%v, %q", err, back)
	}
}
