package main

import (
	"cmp"
	"context"
	"slices"
)

// table is one of the benchmark's. To add one: an entry in tables, a file with its turn, and a section with its marks
// in BENCHMARKS.md.
type table struct {
	name, what string
	how        func(*bench) string // how it is measured, for its reader: whole sentences
	subjects   []string            // names; the table has them in the order of the list of subjects
	apps       []subject           // started once for the whole table, but where ownApps is set
	ownApps    bool                // each turn starts its own: the kernel's state of one turn does not affect the next
	tools      []string            // peers that make its load
	many       bool                // it holds b.held connections
	cases      []string            // each has rows of its own; none is one case without a name
	columns    []column
	ratios     []*metric // compared with each peer
	aims       []aim
	rounds     int      // where it is not the default
	quick      []string // subjects of a quick run, where they are not quickSubjects
	timed      bool     // a turn's load lasts b.duration
	turn       func(context.Context, *bench, turn) (values, error)
}

// turn is one measurement of one subject.
type turn struct {
	subject
	kase  string
	round int
	apps  map[string]*process // of the table, by name
}

// quickSubjects are those of a quick run.
var quickSubjects = []string{"direct", "lastcall-http", "envoy", "haproxy-http"}

// tables in the order in which they are made. A list and not a function would be initialised in a circle.
var tables []*table

func init() {
	tables = []*table{
		http1Table,
		bodiesTable,
		tlsTable,
		shortTable,
		http2Table,
		startTable,
		memoryTable,
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
func (b *bench) of(t *table) []subject {
	wanted := t.subjects
	if b.quick {
		if wanted = t.quick; wanted == nil {
			wanted = quickSubjects
		}
	}
	return slices.DeleteFunc(slices.Clone(b.subjects), func(s subject) bool {
		name := cmp.Or(s.rival, s.name)
		return !slices.Contains(t.subjects, name) || !slices.Contains(wanted, name)
	})
}
