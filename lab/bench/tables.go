package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/lastcall-dev/lastcall/internal/peers"
)

// table is one of the benchmark's.
type table struct {
	name, what string
	subjects   []string // names, in the order of subjects
	apps       []subject
	tools      []string // peers that make its load
	many       bool     // it holds --held connections
	run        func(*bench, context.Context) error
}

// tables in the order in which they are made. A function, and not a list, would be initialised in a circle.
var tables []table

func init() {
	tables = []table{
		{name: "http1", what: "requests/s with keep-alive connections", apps: []subject{backend}, tools: []string{"wrk"}, run: (*bench).http1,
			subjects: []string{"direct", "relay", "lastcall-http", "lastcall-tcp", "before-http", "before-tcp", "envoy", "envoy-lean", "haproxy-http", "haproxy-tcp", "nginx", "caddy"}},
		{name: "http2", what: "the same in HTTP/2 without TLS, 16 connections of 32 streams", apps: []subject{backend, backend2}, tools: []string{"h2load"}, run: (*bench).http2,
			subjects: []string{"direct", "lastcall-http", "before-http", "envoy", "haproxy-http", "nginx", "caddy"}},
		{name: "latency", what: "p99 at half of each one's most requests/s, of HTTP/1.1", apps: []subject{backend}, tools: []string{"wrk"}, run: (*bench).latency,
			subjects: []string{"direct", "lastcall-http", "before-http", "envoy", "haproxy-http", "nginx", "caddy"}},
		{name: "bodies", what: "bodies of 10 MB either way, and streams without an end", apps: []subject{bulkApp}, run: (*bench).bodies,
			subjects: []string{"direct", "lastcall-http", "lastcall-tcp", "before-http", "before-tcp", "envoy", "haproxy-http", "haproxy-tcp", "haproxy-splice", "nginx", "caddy"}},
		{name: "memory", what: "resident memory with --held idle connections", apps: []subject{backend}, many: true, run: (*bench).memory,
			subjects: []string{"lastcall-http", "lastcall-tcp", "before-http", "before-tcp", "envoy", "haproxy-http", "haproxy-tcp", "nginx", "caddy"}},
		{name: "drain", what: "the end of --held connections, half of them busy", apps: []subject{holdApp}, many: true, run: (*bench).drain,
			subjects: []string{"lastcall-http", "before-http"}},
		{name: "start", what: "from exec to the first connection and the first answer", apps: []subject{backend}, run: (*bench).start,
			subjects: []string{"lastcall-http", "before-http", "envoy", "haproxy-http", "nginx", "caddy"}},
	}
}

func tableNames() (all []string) {
	for _, t := range tables {
		all = append(all, t.name)
	}
	return all
}

func names(subjects []subject) (all []string) {
	for _, s := range subjects {
		all = append(all, s.name)
	}
	return all
}

// of is the subjects of a table that are to be measured.
func (b *bench) of(name string) []subject {
	i := slices.IndexFunc(tables, func(t table) bool { return t.name == name })
	return slices.DeleteFunc(slices.Clone(b.subjects), func(s subject) bool { return !slices.Contains(tables[i].subjects, s.name) })
}

// findPrograms says at once which program is missing, not after a quarter of an hour.
func (b *bench) findPrograms(lastcall, before string) (err error) {
	b.programs = map[string]string{}
	missing := map[string]bool{}
	for _, t := range b.tables {
		for _, s := range slices.Concat(t.apps, b.of(t.name)) {
			b.programs[s.name], err = s.program(lastcall, before)
			if s.optional && errors.Is(err, peers.ErrMissing) {
				missing[s.name] = true
				continue
			}
			if err != nil {
				return err
			}
		}
		for _, tool := range t.tools {
			path, err := peers.Find(tool)
			if err != nil {
				return err
			}
			if tool == "wrk" {
				b.wrk = path
			} else {
				b.h2load = path
			}
		}
		if t.many {
			if err := raiseFileLimit(b.held); err != nil {
				return err
			}
		}
	}
	for name := range missing {
		fmt.Fprintf(os.Stderr, "%s is left out: %v\n", name, peers.ErrMissing)
	}
	b.subjects = slices.DeleteFunc(slices.Clone(b.subjects), func(s subject) bool { return missing[s.name] })
	return nil
}

// inTurns calls turn for each subject in each round; in each round another one begins.
func (b *bench) inTurns(subjects []subject, turn func(subject) (progress string, err error)) error {
	for round := range b.rounds {
		for i := range subjects {
			s := subjects[(round+i)%len(subjects)]
			progress, err := turn(s)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			fmt.Fprintf(os.Stderr, "round %d of %d: %-14s %s\n", round+1, b.rounds, s.name, progress)
		}
	}
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
	return start(ctx, s, b.programs[s.name], b.loadCore, p)
}

// proxy starts a subject in front of the app, on the core of the proxies.
func (b *bench) proxy(ctx context.Context, s subject, app *process, p place) (*process, error) {
	var err error
	if p.Dir, err = b.folder(s.name); err != nil {
		return nil, err
	}
	p.Backend = app.port
	return start(ctx, s, b.programs[s.name], b.proxyCore, p)
}
