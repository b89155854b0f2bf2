package transparency

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// atOnce is how many rows are tried at a time; those that rest take no processor.
const atOnce, atRest = 32, 100

// tries is how often a mode that looks worse is tried in all; it is worse if it was so most times.
const tries = 3

// result is of a row in one mode.
type result struct {
	row, mode, plain, got string
	verdict               verdict
}

// While nothing drains, a client observes the same behind lastcall as without, or better.
func TestTransparency(t *testing.T) {
	began := time.Now()
	p := newPlace(t)
	servers := p.startServers()
	c := startClients(p)
	rows := slices.Concat(p.rawRows(), p.scriptedRows(c), p.serverRows(c, servers), p.secureRows(c, servers), p.grpcRows())
	if only := os.Getenv("ROWS"); only != "" { // a part of a name, for work on one row
		rows = slices.DeleteFunc(rows, func(r *row) bool { return !strings.Contains(r.name, only) })
	}
	p.startPipes()
	t.Logf("%d rows; servers and clients started in %v", len(rows), time.Since(began).Round(time.Second))
	var mu sync.Mutex // guards results
	var results []result
	var group sync.WaitGroup
	busy, resting := make(chan struct{}, atOnce), make(chan struct{}, atRest)
	slices.SortStableFunc(rows, func(a, b *row) int {
		switch {
		case a.rests && !b.rests:
			return -1
		case b.rests && !a.rests:
			return 1
		}
		return 0
	})
	for _, r := range rows {
		slots := busy
		if r.rests {
			slots = resting
		}
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			out := p.try(r)
			mu.Lock()
			defer mu.Unlock()
			results = append(results, out...)
		})
	}
	group.Wait()
	report(t, len(rows), results)
	t.Logf("in %v", time.Since(began).Round(time.Second))
}

// try does a row in all modes.
func (p *place) try(r *row) (results []result) {
	var plain []outcome
	for range 2 {
		out, err := r.do(direct)
		if err != nil {
			p.t.Errorf("%s, direct: %v", r.name, err)
			return nil
		}
		plain = append(plain, out)
	}
	for _, mode := range p.modes() {
		if r.modes != "" && !slices.Contains(strings.Fields(r.modes), mode) {
			continue
		}
		var got outcome
		bad, best := 0, worse
		for try := 0; try < tries && bad <= tries/2; try++ {
			var err error
			if got, err = r.do(mode); err != nil {
				p.t.Errorf("%s, %s: %v", r.name, mode, err)
				return nil
			}
			if v := nearest(plain, got); v != worse {
				best = v
				if bad == 0 {
					break
				}
			} else {
				bad++
			}
		}
		v := best
		if bad > tries/2 {
			v = worse
		}
		results = append(results, result{r.name, mode, plain[0].String(), got.String(), v})
	}
	return results
}

// nearest is the best verdict against what direct has shown.
func nearest(plain []outcome, got outcome) verdict {
	best := worse
	for _, one := range plain {
		if v := compare(one, got); v == equal || v == better && best == worse {
			best = v
		}
	}
	return best
}

// report prints the table, and what is worse; that may be by design.
func report(t *testing.T, rows int, results []result) {
	t.Helper()
	slices.SortFunc(results, func(a, b result) int { return strings.Compare(a.row+a.mode, b.row+b.mode) })
	counts := map[string]map[string]int{}
	used := map[exception]int{}
	for _, r := range results {
		if counts[r.mode] == nil {
			counts[r.mode] = map[string]int{}
		}
		column := r.verdict.String()
		if r.verdict == worse {
			if e := find(byDesign, r); e.why != "" {
				column = "by design"
				used[e]++
			} else {
				t.Errorf("%s, %s:\n    direct: %s\n    behind: %s", r.row, r.mode, r.plain, r.got)
			}
		}
		counts[r.mode][column]++
	}
	columns := []string{"equal", "better", "by design", "worse"}
	var table strings.Builder
	fmt.Fprintf(&table, "%d rows\n%-9s %9s", rows, "mode", "rows")
	for _, column := range columns {
		fmt.Fprintf(&table, " %9s", column)
	}
	for _, mode := range behind {
		n := 0
		var line strings.Builder
		for _, column := range columns {
			n += counts[mode][column]
			fmt.Fprintf(&line, " %9d", counts[mode][column])
		}
		fmt.Fprintf(&table, "\n%-9s %9d%s", mode, n, &line)
	}
	t.Log(table.String())
	for _, e := range byDesign {
		t.Logf("by design, %d: %s (%s): %s", used[e], e.row, e.modes, e.why)
	}
	if os.Getenv("ROWS") != "" {
		return
	}
	for _, e := range byDesign {
		if used[e] == 0 && !isAbsent(results, e) {
			t.Errorf("no row needs the exception %q any longer: %s", e.row, e.why)
		}
	}
}

// exception is of the rows whose names contain a text, in some modes.
type exception struct{ row, modes, why string }

func (e exception) isOf(r result) bool {
	return strings.Contains(r.row, e.row) && slices.Contains(strings.Fields(e.modes), r.mode)
}

func find(all []exception, r result) exception {
	if i := slices.IndexFunc(all, func(e exception) bool { return e.isOf(r) }); i >= 0 {
		return all[i]
	}
	return exception{}
}

// isAbsent reports whether no row was tried to which an exception applies: without root, nothing is captured.
func isAbsent(results []result, e exception) bool {
	return !slices.ContainsFunc(results, e.isOf)
}
