package webhook

import (
	"errors"
	"strings"
	"testing"
)

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
		{"depth that no parser reads", strings.Repeat("[", 100_000), "nested deeper than 100"},
		{"brackets in a text", `{"a":"` + strings.Repeat(`\\\"[,{`, maxValues) + `"}`, ""},
		{"bytes", `["` + strings.Repeat("x", maxObject) + `"]`, "larger than 2097152 bytes"},
	} {
		var got review
		err := got.read([]byte(reviewOf(c.object, "CREATE")))
		no, isExcess := errors.AsType[refusal](err)
		if c.says == "" && err != nil || c.says != "" && (!isExcess || no.code != 0 || !strings.Contains(no.text, c.says)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.says)
		}
		if q := got.Request; q.UID != "u-1" || q.Namespace != "shop" || q.Operation != "CREATE" {
			t.Errorf("%s: the answer's fields are %+v", c.name, q.UID)
		}
	}
}
