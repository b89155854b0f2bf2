package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
)

// turnLimit is how long a turn may take, beyond what --duration adds: a peer that hangs fails, and the others continue.
const turnLimit = 2 * time.Minute

// failures is after how many failed turns a subject is left out of the rest of a table.
const failures = 2

// with is the settings for one table.
func (b *bench) with(t *table) *bench {
	settings := *b
	if t.rounds != 0 && b.given["rounds"] == "" {
		settings.rounds = t.rounds
	}
	if b.quick {
		settings.rounds, settings.duration = max(1, settings.rounds/quickFactor), time.Second
	}
	return &settings
}

// schedule is the turns of a table in their order. The subjects take turns, and in each round another one begins.
func (b *bench) schedule(t *table) (all []turn) {
	among := b.of(t)
	for _, kase := range t.casesOrOne() {
		for round := range b.rounds {
			for i := range among {
				s := among[(round+i)%len(among)]
				all = append(all, turn{subject: s, kase: kase, round: round})
			}
		}
	}
	return all
}

func (t *table) casesOrOne() []string {
	if t.cases == nil {
		return []string{""}
	}
	return t.cases
}

// measure makes one table. What has been measured is returned with the error of a ctx that ends in the middle too.
func (b *bench) measure(ctx context.Context, t *table) (*outcome, error) {
	o := &outcome{table: t, subjects: b.of(t), cases: t.casesOrOne(), left: b.left[t]}
	o.samples = map[string]map[string][]values{}
	for _, kase := range o.cases {
		o.samples[kase] = map[string][]values{}
	}
	apps := map[string]*process{}
	if !t.ownApps {
		for _, s := range t.apps {
			app, err := b.app(ctx, s, place{HTTP2: s.http2, Clients: connections})
			if err != nil {
				return o, err
			}
			defer app.stop()
			apps[s.name] = app
		}
	}
	failed := map[string]int{}
	turns := b.schedule(t)
	for i, turn := range turns {
		turn.apps = apps
		var v values
		err := errors.New("it has failed too often")
		if failed[turn.name] < failures {
			within, cancel := context.WithTimeout(ctx, turnLimit+4*b.duration)
			v, err = t.turn(within, b, turn)
			cancel()
			if ctx.Err() != nil {
				return o, ctx.Err()
			}
			if err != nil {
				v = nil // figures of half a turn are none
				failed[turn.name]++
				o.failedOurs = o.failedOurs || turn.ours
				text := fmt.Sprintf("%s %s in round %d: %s", turn.title, turn.kase, turn.round+1, firstLine(err))
				o.failed = append(o.failed, strings.TrimSpace(text))
			}
		}
		o.samples[turn.kase][turn.name] = append(o.samples[turn.kase][turn.name], v)
		b.progress(t, i+1, len(turns), turn, v, err)
	}
	o.complete = true
	return o, nil
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// progress writes the result of a turn to standard error.
func (b *bench) progress(t *table, i, n int, of turn, v values, err error) {
	var what string
	if err != nil {
		what = "failed: " + firstLine(err)
	} else {
		var figures []string
		for _, c := range t.columns {
			figure := c.of.title + " "
			isShown := slices.ContainsFunc(figures, func(s string) bool { return strings.HasPrefix(s, figure) })
			if value, ok := v[c.of]; ok && len(figures) < 3 && !isShown {
				figures = append(figures, figure+c.of.show(value))
			}
		}
		what = strings.Join(figures, ", ")
	}
	fmt.Fprintf(os.Stderr, "%s %d of %d, round %d of %d, %s: %s\n", t.name, i, n, of.round+1, b.rounds,
		strings.TrimSpace(of.name+" "+of.kase), what)
}

// findPrograms determines the missing programs of each table, before the first of them begins. A missing peer is left
// out; a table without its app or its tool is not made.
func (b *bench) findPrograms(lastcall string) error {
	b.programs, b.left = map[string]string{}, map[*table][]string{}
	missing := map[string]bool{}
	b.tables = slices.DeleteFunc(slices.Clone(b.tables), func(t *table) bool {
		for _, tool := range t.tools {
			path, err := peers.Find(tool)
			if err != nil {
				fmt.Fprintf(os.Stderr, "The table %s is left out: %v\n", t.name, err)
				return true
			}
			b.programs[tool] = path
		}
		for _, app := range t.apps {
			path, err := app.program(lastcall)
			if err != nil {
				fmt.Fprintf(os.Stderr, "The table %s is left out: %v\n", t.name, err)
				return true
			}
			b.programs[app.name] = path
		}
		return false
	})
	for _, t := range b.tables {
		for _, s := range b.of(t) {
			from := lastcall
			if s.rival != "" {
				from = b.against
			}
			path, err := s.program(from)
			switch {
			case errors.Is(err, peers.ErrMissing):
				if !missing[s.name] {
					fmt.Fprintf(os.Stderr, "%s is left out: %v\n", s.name, err)
				}
				missing[s.name] = true
				b.left[t] = append(b.left[t], s.name)
			case err != nil:
				return err
			}
			b.programs[s.name] = path
		}
		if t.many {
			if err := raiseFileLimit(b.held); err != nil {
				return err
			}
		}
	}
	b.subjects = slices.DeleteFunc(b.subjects, func(s subject) bool { return missing[s.name] })
	return nil
}

// folder is a new one for a process, below the one that is removed at the end.
func (b *bench) folder(name string) (string, error) {
	dir, err := os.MkdirTemp(b.dir, name)
	if err != nil {
		return "", fmt.Errorf("make a folder for %s: %w", name, err)
	}
	return dir, nil
}

// app starts one of the apps, on the core of the load.
func (b *bench) app(ctx context.Context, s subject, p place) (*process, error) {
	var err error
	if p.Dir, err = b.folder(s.name); err != nil {
		return nil, err
	}
	return start(ctx, s, b.programs[s.name], loadCore, p)
}

// proxy starts a subject in front of the app, on the core of the proxies.
func (b *bench) proxy(ctx context.Context, s subject, app *process, p place) (*process, error) {
	var err error
	if p.Dir, err = b.folder(s.name); err != nil {
		return nil, err
	}
	p.Backend = app.port
	return start(ctx, s, b.programs[s.name], proxyCore, p)
}
