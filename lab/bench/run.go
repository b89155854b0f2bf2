package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// turnLimit is how long a turn may take: a peer that hangs fails, and the others continue.
const turnLimit = 2 * time.Minute

// failures is after how many failed turns a subject is left out of the rest of a table.
const failures = 2

// fewestClients is the smallest number of clients that a configuration is made for.
const fewestClients = 2048

// of is the subjects of a table that are to be measured.
func (b *bench) of(t *table) []subject {
	return slices.DeleteFunc(slices.Clone(b.subjects), func(s subject) bool {
		return !slices.Contains(t.subjects, s.name) && !slices.Contains(t.subjects, s.rival)
	})
}

// turn measures one subject once.
type turn func(context.Context, *table, load, subject) (values, error)

// measure makes one table, or if ctx ends as much of it as has been measured. The subjects take turns, and in each
// round another one begins.
func (b *bench) measure(ctx context.Context, t *table, turn turn) *outcome {
	o := &outcome{table: t, subjects: b.of(t), samples: map[row][]values{}}
	failed := map[string]int{}
	for _, l := range t.cases {
		for round := range b.roundsOf(t) {
			for i := range o.subjects {
				s := o.subjects[(round+i)%len(o.subjects)]
				at, name := row{l.title, s.name}, strings.TrimSpace(s.title+" "+l.title)
				var v values
				what := "it has failed too often"
				if failed[s.name] < failures {
					figures, err := turn(ctx, t, l, s)
					switch {
					case ctx.Err() != nil:
						o.failed = append(o.failed, "all that is lacking: interrupted")
						return o
					case err != nil: // figures of half a turn are none
						failed[s.name]++
						what, _, _ = strings.Cut(err.Error(), "\n")
						o.failed = append(o.failed, fmt.Sprintf("%s in round %d: %s", name, round+1, what))
					default:
						v, what = figures, t.columns[0].title+" "+t.columns[0].of.show(figures[t.columns[0].of])
					}
				}
				o.samples[at] = append(o.samples[at], v)
				fmt.Fprintf(os.Stderr, "%s, round %d of %d, %s: %s\n", t.name, round+1, b.roundsOf(t), name, what)
			}
		}
	}
	return o
}

// turn has the subject in front of an app that has just been started: the kernel's state of one turn does not
// affect the next.
func (b *bench) turn(ctx context.Context, t *table, l load, s subject) (values, error) {
	ctx, cancel := context.WithTimeout(ctx, turnLimit)
	defer cancel()
	p := place{Files: b.files, Clients: max(fewestClients, l.clients+100), HTTP2: l.http2 && !s.http1}
	served := backend
	if p.HTTP2 {
		served = backend2
	}
	app, err := start(ctx, served, loadCore, p)
	if err != nil {
		return nil, err
	}
	defer app.stop()
	if _, err := app.idle(); err != nil {
		return nil, err
	}
	p.Backend, p.HTTP2 = app.port, l.http2
	if l.tls {
		p.TLS = b.files + "/tls.pem"
	}
	proxy, err := start(ctx, s, proxyCore, p)
	if err != nil {
		return nil, err
	}
	defer proxy.stop()
	if t.measure != nil {
		return t.measure(ctx, l, proxy)
	}
	return loaded(ctx, l, proxy)
}
