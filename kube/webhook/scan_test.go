package webhook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// scanned gives the scanner a text in pieces.
func scanned(body []byte, piece int) (*scanner, error) {
	s := &scanner{}
	for len(body) > 0 {
		n := min(piece, len(body))
		if err := s.write(body[:n]); err != nil {
			return s, err
		}
		body = body[n:]
	}
	return s, s.finish()
}

// FuzzScan: what encoding/json takes, the scanner takes too, with the same fields; and it finds the object however the
// text is cut.
func FuzzScan(f *testing.F) {
	f.Add([]byte(reviewOf(podJSON, "CREATE")), 1)
	f.Add([]byte(` {"request":{"object":[1,-2.5e+3,true,null,"\"]"],"uid":"a\u0062"}, "request2":{"object":{}}} `), 3)
	f.Add([]byte(`{"request":["uid","object",{}],"x":{"object":1},"apiVersion":{"kind":"no"}}`), 2)
	f.Fuzz(func(t *testing.T, body []byte, piece int) {
		piece = max(1, min(piece, len(body)))
		s, err := scanned(body, piece)
		other, otherErr := scanned(body, len(body)+1)
		if fmt.Sprint(err) != fmt.Sprint(otherErr) || s.start != other.start || s.end != other.end {
			t.Fatalf("in pieces of %d: %v [%d,%d], in one: %v [%d,%d]", piece, err, s.start, s.end, otherErr, other.start, other.end)
		}
		var plain map[string]json.RawMessage
		if json.Unmarshal(body, &plain) != nil {
			return
		}
		if errors.As(err, &excessError{}) {
			return
		}
		var request map[string]json.RawMessage
		_ = json.Unmarshal(plain["request"], &request)
		if err != nil {
			// Two objects of which one is not examined, and fields without an end.
			if bytes.Count(body, []byte("object")) > 1 || bytes.Count(body, []byte(`\u`)) > 1 || len(body) > maxField {
				return
			}
			t.Fatalf("%q: %v", body, err)
		}
		if bytes.Contains(body, []byte(`\`)) || bytes.Count(body, []byte("object")) > 1 || bytes.Count(body, []byte("request")) > 1 {
			return // keys that are written in another way are no keys of the API server's
		}
		if want := bytes.TrimSpace(request["object"]); !bytes.Equal(body[s.start:s.end], want) {
			t.Fatalf("%q: object %q, want %q", body, body[s.start:s.end], want)
		}
	})
}

func TestScanRefusesWhatIsNoJSON(t *testing.T) {
	for _, text := range []string{"", "{", "}", "[1,]", "{,}", `{"a"}`, `{"a":}`, `{"a":1,}`, `{"a":1]`, "[1}", "1 2", `"`, "\"\n\"", `{"a" 1}`, `{1:2}`, "[1 2]", `"\`, "%"} {
		if _, err := scanned([]byte(text), 1); err == nil {
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
		{"bytes", `"` + strings.Repeat("x", maxObject) + `"`, "larger than 2097152 bytes"},
	} {
		s, err := scanned([]byte(reviewOf(c.object, "CREATE")), 4096)
		var excess excessError
		if c.says == "" && err != nil || c.says != "" && (!errors.As(err, &excess) || !strings.Contains(excess.reason, c.says)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.says)
		}
		if text(s.uid) != "u-1" || text(s.namespace) != "shop" || text(s.operation) != "CREATE" {
			t.Errorf("%s: the answer's fields are %s %s %s", c.name, s.uid, s.namespace, s.operation)
		}
	}
}

func BenchmarkScan(b *testing.B) {
	body := []byte(reviewOf(podJSON, "CREATE"))
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		s := scanner{}
		if s.write(body) != nil {
			b.Fatal("not taken")
		}
	}
}
