package pod

import (
	"maps"
	"regexp"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"
)

// loop repeats commands as long as a condition holds for certain; of one that is unknown, any number of rounds is
// possible.
func (r *reading) loop(holds func() result, next func(), do []*syntax.Stmt) result {
	for {
		before, round := maps.Clone(r.vars), r.round
		condition := holds()
		if r.exits || condition == fails {
			return succeeds
		}
		if condition == succeeds {
			r.list(do)
			if r.breaks && !r.isContinue || r.exits {
				r.breaks = false
				return succeeds
			}
			r.breaks, r.isContinue = false, false
		}
		if condition == open || r.mayBreak || r.mayExit {
			out := r.doubtful(do, "a loop")
			r.vars, r.mayBreak = map[string]string{}, false // the rounds' assignments are unknown
			return out
		}
		next()
		if maps.Equal(before, r.vars) && round == r.round { // the next round is the same
			r.exits = true
			r.add(Step{Do: Sleep, For: Forever})
			return open
		}
	}
}

func (r *reading) each(c *syntax.ForClause) result {
	switch loop := c.Loop.(type) {
	case *syntax.CStyleLoop:
		r.condition(loop.Init)
		return r.loop(func() result { return r.condition(loop.Cond) }, func() { r.condition(loop.Post) }, c.Do)
	case *syntax.WordIter:
		var items []string
		for _, w := range loop.Items {
			items = append(items, r.items(w)...)
		}
		i := -1
		return r.loop(func() result {
			if i++; i >= len(items) {
				return fails
			}
			if strings.Contains(items[i], dynamic) {
				delete(r.vars, loop.Name.Value)
				return open
			}
			r.vars[loop.Name.Value] = items[i]
			return succeeds
		}, func() { r.round = strconv.Itoa(i) }, c.Do) // equal items are no endless loop
	}
	return r.unknown("a menu")
}

var braces = regexp.MustCompile(`^\{(\d{1,4})\.\.(\d{1,4})\}$`)

// items are the values of a word of a for loop: {1..10} and $(seq 10) too.
func (r *reading) items(w *syntax.Word) []string {
	from := 1
	var to int
	if m := braces.FindStringSubmatch(w.Lit()); m != nil {
		from, _ = strconv.Atoi(m[1])
		to, _ = strconv.Atoi(m[2])
	} else if sub, ok := w.Parts[0].(*syntax.CmdSubst); ok && len(w.Parts) == 1 && len(sub.Stmts) == 1 {
		call, _ := sub.Stmts[0].Cmd.(*syntax.CallExpr)
		if call == nil || len(call.Args) < 2 || len(call.Args) > 3 || call.Args[0].Lit() != "seq" {
			return []string{dynamic}
		}
		args := r.fields(call.Args[1:])
		if len(args) == 0 { // an empty variable
			return []string{dynamic}
		}
		last, err := strconv.Atoi(args[len(args)-1])
		if len(args) == 2 && err == nil {
			from, err = strconv.Atoi(args[0])
		}
		if to = last; err != nil {
			return []string{dynamic}
		}
	} else {
		return r.fields([]*syntax.Word{w})
	}
	var out []string
	for i := from; i <= to && len(out) <= maxCommands; i++ {
		out = append(out, strconv.Itoa(i))
	}
	return out
}

// condition evaluates arithmetic, with its assignments; a part that a for loop lacks holds.
func (r *reading) condition(x syntax.ArithmExpr) result {
	if x == nil {
		return succeeds
	} else if !isPlain(x) {
		return open
	}
	e := &environ{reading: r}
	switch n, err := expand.Arithm(&expand.Config{Env: e}, x); {
	case err != nil, e.missed:
		return open
	case n == 0:
		return fails
	}
	return succeeds
}

func (r *reading) binary(c *syntax.BinaryCmd) result {
	first := r.decision([]*syntax.Stmt{c.X})
	if r.exits || r.breaks {
		return first
	}
	runs := first
	switch c.Op {
	case syntax.OrStmt:
		runs = first.not()
	case syntax.AndStmt:
	default: // a pipe
		return r.statement(c.Y)
	}
	switch runs {
	case succeeds:
		return r.statement(c.Y)
	case fails:
		r.isExempt = true
		return first
	}
	var second result
	r.some(func(child *reading) { second = child.statement(c.Y) }, nothing)
	if c.Op == syntax.OrStmt && second == succeeds {
		return succeeds
	}
	return open
}

// decision reads the commands of a condition, which set -e does not end.
func (r *reading) decision(stmts []*syntax.Stmt) result {
	errexit := r.errexit
	r.errexit = false
	out := r.list(stmts)
	r.errexit = errexit
	return out
}

func (r *reading) branch(c *syntax.IfClause) result {
	if len(c.Cond) == 0 { // else
		return r.list(c.Then)
	}
	switch r.decision(c.Cond) {
	case succeeds:
		return r.list(c.Then)
	case fails:
		if c.Else == nil {
			return succeeds
		}
		return r.branch(c.Else)
	}
	return r.some(func(then *reading) { then.list(c.Then) }, func(other *reading) {
		if c.Else != nil {
			other.branch(c.Else)
		}
	})
}
