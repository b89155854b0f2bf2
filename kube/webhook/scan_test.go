package webhook

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// FuzzScan: what encoding/json reads, scan reads too, with the same object and the same answer for a part of it.
func FuzzScan(f *testing.F) {
	f.Add([]byte(reviewOf(podJSON, "CREATE")))
	f.Add([]byte(` {"request":{"object":[1,-2.5e+3,true,null,"\"]"],"uid":"a\u0062"}, "request2":{"object":{}}} `))
	f.Add([]byte(`{"request":["uid","object",{}],"x":{"object":1},"apiVersion":{"kind":"no"}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var got review
		err := scan(body, &got)
		var part review
		if err := scan(body[:len(body)/2], &part); err == nil && len(bytes.TrimSpace(body[len(body)/2:])) > 0 && json.Valid(body) {
			t.Fatalf("half of %q was read as a whole", body)
		}
		var want struct {
			APIVersion, Kind string
			Request          struct {
				UID    string
				Object json.RawMessage
			}
		}
		if err != nil || json.Unmarshal(body, &want) != nil {
			return
		}
		if !json.Valid(body) {
			t.Fatalf("%q was read", body)
		}
		if strings.Count(strings.ToLower(string(body)), "object") > 1 || strings.Count(strings.ToLower(string(body)), "request") > 1 || bytes.Contains(body, []byte(`\`)) {
			return // encoding/json merges fields that are there twice, and ignores their case
		}
		object := want.Request.Object
		if len(object) > 0 && object[0] != '{' && object[0] != '[' {
			object = nil
		}
		if bytes.Contains(body, []byte(`"object"`)) && bytes.Contains(body, []byte(`"request"`)) && !bytes.Equal(got.Object.Raw, object) {
			t.Fatalf("%q: object %q, want %q (%v)", body, got.Object.Raw, object, got.kind)
		}
	})
}

func TestScanRefusesWhatIsNoReview(t *testing.T) {
	for _, text := range []string{"", "{", "}", "[1,]", "{,}", `{"a"}`, `{"a":}`, `{"a":1,}`, `{"a":1]`, "[1}", "1 2", `"`, "\"\n\"", `{"a" 1}`, `{1:2}`, "[1 2]", `"\`, "%",
		`{} {}`, `{"request":{"object":{}}`, `{"request":{"object":{]}}`, `{"request":{"object":[1 2]}}`} {
		if err := scan([]byte(text), &review{}); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}

func TestScanBounds(t *testing.T) {
	list := func(n int, element string) string {
		return "[" + strings.TrimSuffix(strings.Repeat(element+",", n), ",") + "]"
	}
	for _, c := range []struct {
		name, object, says string
	}{
		{"a list at the bound", list(maxElements, "{}"), ""},
		{"a list beyond it", list(maxElements+1, "{}"), "more than 1000 elements"},
		{"values at the bound", list((maxValues-1)/10, list(9, "0")), ""},
		{"values beyond it", list(maxValues/10, list(10, "0")), "more than 10000 values"},
		{"fields", "{" + strings.TrimSuffix(strings.Repeat(`"a":"b",`, maxValues), ",") + "}", "more than 10000 values"},
		{"depth", strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth), "nested deeper than 100"},
		{"bytes", `["` + strings.Repeat("x", maxObject) + `"]`, "larger than 2097152 bytes"},
	} {
		var got review
		err := scan([]byte(reviewOf(c.object, "CREATE")), &got)
		var excess excessError
		if c.says == "" && err != nil || c.says != "" && (!errors.As(err, &excess) || !strings.Contains(excess.reason, c.says)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.says)
		}
		if got.UID != "u-1" || got.Namespace != "shop" || got.Operation != "CREATE" {
			t.Errorf("%s: the answer's fields are %+v", c.name, got.AdmissionRequest)
		}
	}
}
