package hall

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/console"
	"github.com/lastcall-dev/lastcall/rehearsal/load"
	"github.com/lastcall-dev/lastcall/rehearsal/outcome"
	"github.com/lastcall-dev/lastcall/rehearsal/service"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

//go:embed apps
var apps embed.FS

// atOnce is how many rows run at the same time.
const atOnce = 2

// Options of a run.
type Options struct {
	Names    []string // of rows; empty: all whose program is installed
	Lastcall string   // path of lastcall; empty: found or built
	Self     string   // path of this program
	Stacks   string   // folder of lab/peers/stacks/install; empty: rows that need it do not run
	Bare     bool     // without lastcall's column

	Progress *os.File // gets a line of progress; nil: nothing
}

// Outcome is a row's result.
type Outcome struct {
	Name    string `json:"name"`
	Bug     string `json:"bug"`
	Fix     string `json:"fix"`
	Skipped string `json:"skipped,omitempty"` // why it did not run
	Error   string `json:"error,omitempty"`   // it did not start, or did not answer

	Requests int                 `json:"requests"`
	Lost     int                 `json:"lost"` // by default
	Short    int                 `json:"silently_short"`
	Reasons  map[load.Reason]int `json:"lost_by,omitempty"`
	GoneMS   int64               `json:"gone_ms"` // from the deletion to the pod's end
	EndedBy  string              `json:"ended_by"`

	FixedLost    int   `json:"fixed_lost"` // -1: it has no fix of its own
	FixedGoneMS  int64 `json:"fixed_gone_ms"`
	LastcallLost int   `json:"lastcall_lost"` // -1: not run
	LastcallGone int64 `json:"lastcall_gone_ms"`

	LastcallLoses bool  `json:"lastcall_loses,omitempty"` // lastcall cannot repair it
	TookMS        int64 `json:"took_ms"`
}

// OK reports whether the bug was found, and neither the fixed twin nor lastcall lost a request that it could save.
func (o Outcome) OK() bool {
	return o.Error == "" && o.Lost > 0 && o.FixedLost <= 0 && (o.LastcallLost <= 0 || o.LastcallLoses)
}

// Run runs the rows. An error is about the set-up (strategy.OptionError: about an option), or ctx's.
func Run(ctx context.Context, o Options) (*Result, error) {
	rows, err := choose(o.Names)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "lastcall-hall-")
	if err != nil {
		return nil, fmt.Errorf("create a folder for the hall's apps: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	// nginx's workers are of another user.
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, fmt.Errorf("create a folder for the hall's apps: %w", err)
	}
	if err := unpack(dir); err != nil {
		return nil, err
	}
	began := time.Now()
	if o.Progress != nil {
		progress := console.NewProgress(o.Progress, func() string {
			return fmt.Sprintf("%d s: rehearsing %d servers, %d at a time", int(time.Since(began).Seconds()), len(rows), atOnce)
		})
		defer progress.End()
	}
	res := &Result{Rows: make([]Outcome, len(rows))}
	errs := make([]error, len(rows))
	turns := make(chan struct{}, atOnce)
	var running sync.WaitGroup
	for i, row := range rows {
		running.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			var err error
			var option strategy.OptionError
			began := time.Now()
			defer func() { res.Rows[i].TookMS = time.Since(began).Milliseconds() }()
			switch res.Rows[i], err = run(ctx, o, row, dir); {
			case errors.As(err, &option):
				errs[i] = err
			case err != nil:
				res.Rows[i].Error = err.Error() // the others continue
			}
		})
	}
	running.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	res.TookMS = time.Since(began).Milliseconds()
	return res, errors.Join(errs...)
}

func choose(names []string) ([]Row, error) {
	all := Rows()
	if len(names) == 0 {
		return all, nil
	}
	var rows []Row
	for _, name := range names {
		i := slices.IndexFunc(all, func(r Row) bool { return r.Name == name })
		if i < 0 {
			var list []string
			for _, r := range all {
				list = append(list, r.Name)
			}
			return nil, strategy.OptionError{Err: fmt.Errorf("unknown server %q: must be one of %s", name, strings.Join(list, ", "))}
		}
		rows = append(rows, all[i])
	}
	return rows, nil
}

// unpack writes the apps to a folder.
func unpack(dir string) error {
	files, err := fs.Glob(apps, "apps/*")
	if err != nil {
		return err
	}
	for _, name := range files {
		text, err := apps.ReadFile(name)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, filepath.Base(name)), text, 0o644)
		}
		if err != nil {
			return fmt.Errorf("write the hall's apps: %w", err)
		}
	}
	return nil
}

// run rehearses one row: the bug, next to lastcall, and the fixed twin.
func run(ctx context.Context, o Options, row Row, dir string) (Outcome, error) {
	out := Outcome{Name: row.Name, Bug: row.Bug, Fix: row.Fix, FixedLost: -1, LastcallLost: -1, LastcallLoses: row.LastcallLoses}
	if ctx.Err() != nil {
		return out, context.Cause(ctx)
	}
	if row.Needs != "" {
		if !o.has(row.Needs) {
			out.Skipped = strings.TrimPrefix(row.Needs, "{stacks}/") + " is not installed"
			return out, nil
		}
	}
	strategies := []string{service.AsIs, "lastcall"}
	if o.Bare {
		strategies = strategies[:1]
	}
	var bug, fixed *outcome.Result
	var errs [2]error
	var both sync.WaitGroup
	both.Go(func() { bug, errs[0] = rehearse(ctx, o, row, row.Buggy, dir, strategies) })
	if row.Fixed.Command != "" {
		both.Go(func() { fixed, errs[1] = rehearse(ctx, o, row, row.Fixed, dir, strategies[:1]) })
	}
	both.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return out, err
	}
	first := bug.Rows[0]
	out.Requests, out.Lost, out.Short, out.Reasons = first.Requests, first.Lost, first.Short, first.Reasons
	out.GoneMS, out.EndedBy = first.GoneMS(), first.EndedBy()
	if fixed != nil {
		out.FixedLost, out.FixedGoneMS = fixed.Rows[0].Lost, fixed.Rows[0].GoneMS()
	}
	if len(bug.Rows) > 1 {
		out.LastcallLost, out.LastcallGone = bug.Rows[1].Lost, bug.Rows[1].GoneMS()
	}
	return out, nil
}

// has reports whether what a row needs is installed.
func (o Options) has(needs string) bool {
	file, found := strings.CutPrefix(needs, "{stacks}/")
	if !found {
		_, err := exec.LookPath(needs)
		return err == nil
	}
	_, err := os.Stat(filepath.Join(o.Stacks, file))
	return o.Stacks != "" && err == nil
}

func rehearse(ctx context.Context, o Options, row Row, s Setup, dir string, strategies []string) (*outcome.Result, error) {
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
		Command:  strings.NewReplacer("{apps}", dir, "{self}", o.Self, "{stacks}", o.Stacks).Replace(s.Command),
		Requests: requests, Strategies: strategies, Propagation: service.Span{To: 2 * time.Second},
		Pod:      service.Pod{Workload: row.Name, Grace: s.Grace, Env: s.Env, PreStop: s.PreStop, StopSignal: s.Signal},
		Lastcall: o.Lastcall, Self: o.Self,
	})
}
