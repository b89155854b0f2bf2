package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
	"github.com/lastcall-dev/lastcall/kube/advice"
)

// observeTable prints terminations of one workload as they happen, at most 80 columns wide, and then their sum. Its
// exported methods are safe for concurrent use.
type observeTable struct {
	mu sync.Mutex

	out   *bufio.Writer // keeps the first error for close
	notes io.Writer
	json  bool

	short   func(name string, most int) string
	hasHead bool
	totals  advice.Totals
	unsure  bool // a termination may have lost a request
}

// newObserveTable prints to out, and remarks to notes. With asJSON, out gets a line of JSON for each termination, and
// no sum.
func newObserveTable(out, notes io.Writer, asJSON bool) *observeTable {
	return &observeTable{out: bufio.NewWriter(out), notes: notes, json: asJSON, short: shortFor(out)}
}

// Note prints a remark.
func (t *observeTable) Note(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(t.notes, format+"\n", args...)
}

// Missed records that a pod was not observed.
func (t *observeTable) Missed(pod string, why error) {
	t.Note("%s: not observed: %v", pod, why)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unsure = true
}

// Ended prints a termination.
func (t *observeTable) Ended(one advice.Termination) {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer func() { _ = t.out.Flush() }()
	t.totals.Add(one)
	t.unsure = t.unsure || one.LostMost != 0
	if t.json {
		if text, err := json.Marshal(one); err == nil {
			fmt.Fprintf(t.out, "%s\n", text)
		}
		return
	}
	if !t.hasHead {
		fmt.Fprintf(t.out, "%-29s %-7s %8s %8s %8s %8s\n", "POD", "VERDICT", "LOST", "TOOK", "IDLE", "LATE")
		t.hasHead = true
	}
	late := "-"
	if one.Lateness > 0 {
		late = advice.Seconds(one.Lateness)
	}
	idle := time.Duration(one.Traffic.Idle).Seconds()
	fmt.Fprintf(t.out, "%-29s %-7s %8s %8s %8s %8s\n", t.short(one.Pod, 29), terminal.Printable(one.Verdict),
		one.Bounds(), advice.Seconds(one.Seconds), advice.Seconds(idle), late)
	for _, text := range []string{one.Traffic.Lost.Why(), one.Doubts()} {
		if text != "" {
			fmt.Fprintf(t.out, "  %s\n", terminal.Printable(text))
		}
	}
}

// terminations is how many were added.
func (t *observeTable) terminations() (n int) {
	for _, w := range t.totals.Workloads() {
		n += w.Terminations
	}
	return n
}

// isLossy reports whether a termination lost a request; with strict, whether one may have.
func (t *observeTable) isLossy(strict bool) bool {
	hasLost := func(w *advice.Workload) bool { return w.Total() > 0 }
	return strict && t.unsure || slices.ContainsFunc(t.totals.Workloads(), hasLost)
}

// close prints the sum. It returns the first error of all output.
func (t *observeTable) close() error {
	if !t.json {
		for _, w := range t.totals.Workloads() {
			fmt.Fprintln(t.out)
			writeWorkload(t.out, w)
		}
	}
	return t.out.Flush()
}

// shortFor returns the function that shortens names on a terminal; a file has them whole.
func shortFor(out io.Writer) func(name string, most int) string {
	if _, isTerminal := onTerminal(out); isTerminal {
		return short
	}
	return func(name string, _ int) string { return terminal.Printable(name) }
}

func onTerminal(out io.Writer) (*os.File, bool) {
	file, isFile := out.(*os.File)
	return file, isFile && terminal.Is(file)
}

// short keeps the end of a pod's name, which differs between pods.
func short(name string, most int) string {
	name = terminal.Printable(name)
	if len(name) <= most {
		return name
	}
	return ".." + name[len(name)-most+2:]
}

// columns is the width of texts.
const columns = 80

// writeWorkload prints a workload's sum and the advice.
func writeWorkload(out io.Writer, w *advice.Workload) {
	fmt.Fprintln(out, terminal.Wrap(terminal.Printable(w.Text()), columns))
	for _, a := range advice.Advise(w) {
		fmt.Fprintln(out, terminal.Wrap("-> "+a.What+": "+a.Why+".", columns))
		for line := range strings.Lines(a.Patch) {
			fmt.Fprint(out, "     "+line)
		}
	}
}
