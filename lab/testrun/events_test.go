package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// stream writes events as go test -json does: each row is action, test, output, of package "p".
func stream(t *testing.T, rows ...[3]string) string {
	t.Helper()
	var b strings.Builder
	for _, row := range rows {
		line, err := json.Marshal(event{Action: row[0], Package: "p", Test: row[1], Output: row[2]})
		if err != nil {
			t.Fatal(err)
		}
		b.Write(line)
		b.WriteByte('\n')
	}
	return b.String()
}

func TestRead(t *testing.T) {
	for _, row := range []struct {
		name   string
		events string
		prints string // before the totals
		totals string
		skips  []string
	}{
		{
			name: "what passes is one line a package",
			events: stream(t, [3]string{"run", "TestA"}, [3]string{"output", "TestA", "=== RUN   TestA\n"},
				[3]string{"output", "TestA", "    a.go:1: chatter\n"}, [3]string{"pass", "TestA"},
				[3]string{"output", "", "PASS\n"}, [3]string{"output", "", "ok  \tp\t0.1s\n"}, [3]string{"pass"}),
			prints: "ok  \tp\t0.1s\n",
			totals: "1 passed, 0 failed, 0 skipped",
		},
		{
			name: "a failure prints its output; its group is not counted",
			events: stream(t, [3]string{"output", "TestA/x", "=== RUN   TestA/x\n"}, [3]string{"output", "TestA/x", "    a.go:1: wrong\n"},
				[3]string{"output", "TestA/x", "    --- FAIL: TestA/x (0.00s)\n"}, [3]string{"fail", "TestA/x"},
				[3]string{"pass", "TestA/y"}, [3]string{"output", "TestA", "--- FAIL: TestA (0.00s)\n"}, [3]string{"fail", "TestA"},
				[3]string{"output", "", "FAIL\tp\t0.1s\n"}, [3]string{"fail"}),
			prints: "    a.go:1: wrong\n    --- FAIL: TestA/x (0.00s)\n--- FAIL: TestA (0.00s)\nFAIL\tp\t0.1s\n",
			totals: "1 passed, 1 failed, 0 skipped",
		},
		{
			name:   "a group that fails by itself is counted",
			events: stream(t, [3]string{"pass", "TestA/x"}, [3]string{"fail", "TestA"}, [3]string{"fail"}),
			totals: "1 passed, 1 failed, 0 skipped",
		},
		{
			name: "a skipped test is listed with its reason",
			events: stream(t, [3]string{"output", "TestA", "=== RUN   TestA\n"}, [3]string{"output", "TestA", "    a.go:1: peer envoy: missing\n"},
				[3]string{"output", "TestA", "--- SKIP: TestA (0.00s)\n"}, [3]string{"skip", "TestA"}, [3]string{"pass"}),
			totals: "0 passed, 0 failed, 1 skipped",
			skips:  []string{"p TestA\n      a.go:1: peer envoy: missing\n"},
		},
		{
			name:   "a package without tests is no skipped test",
			events: stream(t, [3]string{"output", "", "?   \tp\t[no test files]\n"}, [3]string{"skip"}),
			prints: "?   \tp\t[no test files]\n",
			totals: "0 passed, 0 failed, 0 skipped",
		},
		{
			name: "what a panic has cut off is printed",
			events: stream(t, [3]string{"output", "TestA", "panic: test timed out\n"}, [3]string{"output", "", "FAIL\tp\t1s\n"},
				[3]string{"fail"}),
			prints: "FAIL\tp\t1s\npanic: test timed out\n",
			totals: "0 passed, 0 failed, 0 skipped",
		},
		{
			name:   "a build error and plain words are passed on",
			events: `{"ImportPath":"p","Action":"build-output","Output":"p/a.go:1: syntax error\n"}` + "\nno such module\n",
			prints: "p/a.go:1: syntax error\nno such module\n",
			totals: "0 passed, 0 failed, 0 skipped",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			var out strings.Builder
			r, err := read(strings.NewReader(row.events), &out)
			if err != nil {
				t.Fatal(err)
			}
			if out.String() != row.prints {
				t.Errorf("printed\n%q, want\n%q", out.String(), row.prints)
			}
			var end strings.Builder
			r.print(&end)
			if !strings.HasSuffix(end.String(), "\n"+row.totals+"\n") {
				t.Errorf("ends with\n%s\nwant %s", end.String(), row.totals)
			}
			for _, s := range row.skips {
				if !strings.Contains(end.String(), s) {
					t.Errorf("list lacks %q:\n%s", s, end.String())
				}
			}
		})
	}
}
