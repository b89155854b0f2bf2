package rollout

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/lastcall-dev/lastcall/rehearsal/console"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
	"github.com/lastcall-dev/lastcall/rehearsal/traffic"
)

// Load is open: a slow request delays no other.
func TestLoadIsPunctual(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts := []*count{{}, {}}
		noTarget := func() []string { return nil }
		began := time.Now()
		load(t.Context(), 100, 50, []*traffic.Client{{Targets: noTarget}, {Targets: noTarget}}, counts)
		if took := time.Since(began); took != 1980*time.Millisecond {
			t.Errorf("it took %v, want 1.98 s", took)
		}
		for i, c := range counts {
			if asked, failed := c.failed(); asked != 50 || failed != 50 || c.failures[traffic.NoPods] != 50 {
				t.Errorf("client %d: %d asked, %v", i, asked, c.failures)
			}
		}
	})
}

// The mix is whole.
func TestMix(t *testing.T) {
	sum := 0
	for _, m := range mix {
		sum += m.percent
		if r := m.make(); r.Method == "" || r.Path == "" {
			t.Errorf("%+v has no method or path", r)
		}
	}
	if sum != 100 {
		t.Errorf("the mix is of %d percent", sum)
	}
}

func TestTable(t *testing.T) {
	res := &Result{OK: true, Requests: 20000, Rate: 200, PropagationMS: 4000, TookMS: 112429}
	for _, s := range Strategies() {
		row := Row{Strategy: s.Name, Words: s.Words, Requests: 20000, Replaced: 20, StayedMS: 5010}
		if s.Name == "none" {
			row.Failed, row.Gateway, row.Inside = 291, 154, 137
			row.Kinds = map[traffic.Failure]int{"503": 137, traffic.Truncated: 35, traffic.Ended: 119}
		}
		res.Rows = append(res.Rows, row)
	}
	var b bytes.Buffer
	if err := res.WriteTable(&b, console.Style{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"✓ lastcall                    20000          0          0          0         20     5.01 s\n",
		"  none                        20000        291        154        137         20     5.01 s\n",
		"lost by: 137 × 503, 119 × no response, 35 × cut response\n",
		"✓ lastcall lost 0 of 20000 requests over 20 replaced pods, in 112.43 s.\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	for line := range strings.Lines(b.String()) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > console.Width {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

func TestOptions(t *testing.T) {
	_, err := Run(t.Context(), Options{Strategies: []string{"x"}, Rate: -1, Propagation: -1, Grace: 1})
	var option strategy.OptionError
	if !errors.As(err, &option) {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{
		`--strategy: unknown strategy "x": must be one of lastcall, istio-default, istio-exit-on-zero, prestop-sleep-5, none`,
		"--requests is 0: must be 1 to", "--rate is -1: must be 1 to", "--propagation is -1ns", "--grace is 1ns",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
}
