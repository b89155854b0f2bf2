package terminal

import (
	"strings"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
)

func TestPrintable(t *testing.T) {
	if got := Printable("GET /\x1b[2J\u009b\u202e\n::error::é \"a\\d\""); got != `GET /\x1b[2J\u009b\u202e\n::error::é "a\d"` {
		t.Errorf("got %s", got)
	}
}

func TestMeasured(t *testing.T) {
	if got := Measured(5074 * time.Millisecond); got != "5.07 s" {
		t.Errorf("got %q", got)
	}
}

func TestDraining(t *testing.T) {
	fixed, istio := drain.DefaultConfig(), drain.DefaultConfig()
	fixed.Mode, istio.Mode = drain.Fixed, drain.IstioExitOnZero
	for _, c := range []struct {
		first  drain.Signal
		config drain.Config
		want   string
	}{
		{drain.Interrupt, drain.DefaultConfig(), "draining, up to 28 s; Ctrl-C again ends at once\n"},
		{drain.Interrupt, fixed, "draining for 5 s, as Istio does\n"},
		{drain.Interrupt, istio, "draining until no connection is open, as Istio does"},
		{drain.Terminate, drain.DefaultConfig(), ""},
		{drain.Hook, drain.DefaultConfig(), ""},
	} {
		var out strings.Builder
		(&Terminal{&out}).Draining(c.first, c.config)
		if got := out.String(); got != c.want && (c.want == "" || !strings.HasPrefix(got, c.want)) {
			t.Errorf("%v, %v: %q, want %q", c.first, c.config.Mode, got, c.want)
		}
	}
	var none *Terminal
	none.Draining(drain.Interrupt, drain.DefaultConfig())
}

func TestShorten(t *testing.T) {
	for _, c := range []struct {
		text string
		n    int
		want string
	}{{"short", 5, "short"}, {"too long", 6, "too…"}, {"ääää", 7, "ää…"}, {"ääää", 6, "ä…"}, {"äää", 3, "…"}} {
		if got := Shorten(c.text, c.n); got != c.want || len(got) > c.n {
			t.Errorf("%q to %d: %q, want %q", c.text, c.n, got, c.want)
		}
	}
}
