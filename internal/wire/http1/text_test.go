package http1

import "testing"

func TestParseStatus(t *testing.T) {
	for value, want := range map[string]int{"200": 200, "099": 99, "20": 0, "2000": 0, "2x0": 0, "": 0, "+20": 0} {
		if got := ParseStatus([]byte(value)); got != want {
			t.Errorf("%q: %d, want %d", value, got, want)
		}
	}
}
