//go:build linux

package knownbugs

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/rehearsal/httpbin/httpbintest"
	"github.com/lastcall-dev/lastcall/rehearsal/load"
	"github.com/lastcall-dev/lastcall/rehearsal/outcome"
	"github.com/lastcall-dev/lastcall/rehearsal/service"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
	"github.com/lastcall-dev/lastcall/rehearsal/traffic"
)

var (
	all   = flag.Bool("all", false, "rehearse all servers that are installed, not two of them, and with lastcall, too")
	names = flag.String("server", "", "names of the servers, separated by commas, with -all")
)

func TestMain(m *testing.M) { httpbintest.Main(m) }

// atOnce is how many rows run at the same time.
const atOnce = 2

// Each bug loses requests, or holds the pod until SIGKILL, and its fixed twin loses none. With -all -v the log has the
// table of README.md.
func TestKnownBugs(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes ten seconds")
	}
	e := environment{apps: unpack(t), stacks: os.Getenv("LASTCALL_STACKS"), strategies: []string{service.AsIs}}
	chosen := func(r Row) bool { return r.Name == "http.server" || r.Name == "websocket" }
	if *all {
		chosen = func(r Row) bool { return *names == "" || slices.Contains(strings.Split(*names, ","), r.Name) }
		e.strategies = append(e.strategies, "lastcall", "lastcall-hook")
		e.lastcall = filepath.Join(t.TempDir(), "lastcall")
		build := exec.Command("go", "build", "-o", e.lastcall, "github.com/lastcall-dev/lastcall/cmd/lastcall")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	rows := slices.DeleteFunc(Rows(), func(r Row) bool { return !chosen(r) })
	lines := make([]string, len(rows))
	turns := make(chan struct{}, atOnce)
	var running sync.WaitGroup
	for i, row := range rows {
		if !e.has(row.Needs) {
			needs := strings.TrimPrefix(row.Needs, "{stacks}/")
			lines[i] = "| " + row.Name + " | not run: " + needs + " is not installed |"
			t.Run(row.Name, func(t *testing.T) { t.Skip(needs, "is not installed") })
			continue
		}
		running.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			var err error
			if lines[i], err = e.run(t.Context(), row); err != nil {
				t.Errorf("%s: %v", row.Name, err)
			}
		})
	}
	running.Wait()
	t.Log("\n| server | what loses requests | lost | short | gone, by | the line that repairs it " +
		"| repaired: lost, gone | with lastcall | with its hook alone |\n" +
		strings.Join(lines, "\n"))
}

// environment is the environment of the rows.
type environment struct {
	apps       string // folder of testdata/apps
	stacks     string // that of lab/peers/stacks/install; empty: rows that need it do not run
	lastcall   string // path of lastcall; empty: found or built
	strategies []string
}

// unpack copies the apps to a folder that nginx's workers, of another user, can read.
func unpack(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "lastcall-knownbugs-")
	if err == nil {
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		err = errors.Join(os.Chmod(dir, 0o755), os.CopyFS(dir, os.DirFS("testdata/apps")))
	}
	must.Do(t, err)
	return dir
}

// has reports whether what a row needs is installed.
func (e environment) has(needs string) bool {
	file, found := strings.CutPrefix(needs, "{stacks}/")
	switch {
	case needs == "":
		return true
	case !found:
		_, err := exec.LookPath(needs)
		return err == nil
	}
	_, err := os.Stat(filepath.Join(e.stacks, file))
	return e.stacks != "" && err == nil
}

// run rehearses one row, the bug and the fixed twin, and returns its line in the table. An error is a
// difference from the row.
func (e environment) run(ctx context.Context, row Row) (string, error) {
	var bug, fixed *outcome.Result
	var errs [2]error
	var both sync.WaitGroup
	both.Go(func() { bug, errs[0] = e.rehearse(ctx, row, row.Buggy, e.strategies) })
	if row.Fixed.Command != "" {
		both.Go(func() { fixed, errs[1] = e.rehearse(ctx, row, row.Fixed, e.strategies[:1]) })
	}
	both.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return "| " + row.Name + " | did not run |", err
	}
	result := func(r outcome.Row) string {
		return fmt.Sprintf("%d/%d, %.1f s", r.Lost, r.Requests, float64(r.GoneMS())/1000)
	}
	first := bug.Rows[0]
	cells := []string{row.Name, row.Bug, fmt.Sprintf("%d/%d", first.Lost, first.Requests), fmt.Sprint(first.Reasons[traffic.Short]),
		fmt.Sprintf("%.1f s, %s", float64(first.GoneMS())/1000, first.EndedBy()), row.Fix}
	err := bugError(row, first)
	if fixed != nil {
		cells = append(cells, result(fixed.Rows[0]))
		if lost := fixed.Rows[0].Lost; lost > 0 {
			err = errors.Join(err, fmt.Errorf("the repaired twin lost %d: %+v", lost, fixed.Rows[0].Losses))
		}
	} else {
		cells = append(cells, "-")
	}
	for _, r := range bug.Rows[1:] {
		cells = append(cells, result(r))
		if r.Strategy == "lastcall" && r.Lost > 0 && !row.LastcallLoses {
			err = errors.Join(err, fmt.Errorf("with lastcall %d were lost: %+v", r.Lost, r.Losses))
		}
		for _, l := range r.Losses {
			cells[len(cells)-1] += fmt.Sprintf(" (%d %s %s: %s)", l.Count, l.Reason, l.Phase, l.Fix)
		}
	}
	return "| " + strings.Join(cells, " | ") + " |", err
}

// bugError is why the bug of a row was not found.
func bugError(row Row, r outcome.Row) error {
	switch {
	case row.Name == "http.server" && r.Reasons[traffic.Short] == 0:
		return fmt.Errorf("no response was silently short: %+v", r)
	case r.Lost == 0 && r.EndedBy() != "SIGKILL":
		return fmt.Errorf("the bug lost nothing: %+v", r)
	}
	return nil
}

func (e environment) rehearse(ctx context.Context, row Row, s Setup, strategies []string) (*outcome.Result, error) {
	texts := row.Requests
	if len(texts) == 0 {
		texts = []string{"GET /slow", "4 GET /fast"}
	}
	var requests []load.Request
	for _, text := range texts {
		r, err := load.ParseRequest(text)
		if err != nil {
			return nil, err
		}
		requests = append(requests, r)
	}
	return service.Run(ctx, service.Options{
		Command: strings.NewReplacer("{apps}", e.apps, "{stacks}", e.stacks).Replace(s.Command),
		Options: load.Options{Requests: requests}, Propagation: 2 * time.Second,
		Pod: service.Pod{Workload: row.Name, Grace: s.Grace,
			Service: strategy.Service{Env: s.Env, Hook: s.Hook, StopSignal: s.Signal}},
		Setup: strategy.Setup{Strategies: strategies, Programs: strategy.Programs{Lastcall: e.lastcall}},
	})
}
