package pod

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"
)

func (r *reading) simple(c *syntax.CallExpr) result {
	if len(c.Args) == 0 {
		for _, a := range c.Assigns {
			r.assign(a)
		}
		return succeeds
	}
	return r.call(r.fields(c.Args))
}

func (r *reading) assign(a *syntax.Assign) {
	if a.Name == nil || a.Naked {
		return
	}
	value := ""
	if a.Value != nil {
		value = strings.Join(r.fields([]*syntax.Word{a.Value}), " ")
	}
	if a.Append || a.Array != nil || a.Index != nil || strings.Contains(value, dynamic) || len(value) > maxValue {
		delete(r.vars, a.Name.Value)
		return
	}
	r.vars[a.Name.Value] = value
}

// dynamic stands for a part of a word whose value is unknown.
const dynamic = "\x00"

// fields are the values of words.
func (r *reading) fields(words []*syntax.Word) (out []string) {
	for _, w := range words {
		if text := w.Lit(); text != "" && !strings.ContainsAny(text, `\~{*?[`) { // most are
			out = append(out, text)
			continue
		}
		e := &environ{reading: r, defaults: r.defaults(w)}
		if isPlain(w) && !strings.Contains(w.Lit(), "{") {
			all, err := expand.Fields(&expand.Config{Env: e}, w)
			if err == nil && !e.missed {
				out = append(out, all...)
				continue
			}
		}
		out = append(out, r.parts(w.Parts))
	}
	return out
}

// parts is the known text of a word.
func (r *reading) parts(all []syntax.WordPart) string {
	var b strings.Builder
	for _, part := range all {
		text := dynamic
		switch p := part.(type) {
		case *syntax.Lit:
			text = p.Value
		case *syntax.SglQuoted:
			text = p.Value
		case *syntax.DblQuoted:
			text = r.parts(p.Parts)
		case *syntax.ParamExp:
			if v, ok := r.vars[p.Param.Value]; ok && p.Exp == nil {
				text = v
			}
		case *syntax.CmdSubst:
			r.inside(func(child *reading) result { return child.list(p.Stmts) })
		}
		b.WriteString(text)
	}
	return b.String()
}

// isPlain reports whether a word has only literal text, variables and arithmetic, which take no time or memory to
// expand.
func isPlain(n syntax.Node) bool {
	plain := true
	syntax.Walk(n, func(n syntax.Node) bool {
		switch n := n.(type) {
		case nil, *syntax.Word, *syntax.Lit, *syntax.SglQuoted, *syntax.DblQuoted, *syntax.ArithmExp,
			*syntax.BinaryArithm, *syntax.UnaryArithm, *syntax.ParenArithm:
			if lit, ok := n.(*syntax.Lit); ok && strings.HasPrefix(lit.Value, "~") {
				plain = false
			}
		case *syntax.ParamExp:
			plain = plain && n.Slice == nil && n.Repl == nil && n.Index == nil && !n.Excl && n.Names == 0 &&
				(n.Exp == nil || n.Exp.Op == syntax.DefaultUnset || n.Exp.Op == syntax.DefaultUnsetOrNull)
		default:
			plain = false
		}
		return plain
	})
	return plain
}

// defaults are the variables of a word that have a default in it, and seem not to be set.
func (r *reading) defaults(w *syntax.Word) (names []string) {
	syntax.Walk(w, func(n syntax.Node) bool {
		p, _ := n.(*syntax.ParamExp)
		if p != nil && p.Param != nil && p.Exp != nil && len(r.container.EnvFrom) == 0 &&
			!slices.ContainsFunc(r.container.Env, func(e corev1.EnvVar) bool { return e.Name == p.Param.Value }) {
			names = append(names, p.Param.Value)
		}
		return true
	})
	return names
}

// environ are the variables of a reading. missed: one that it does not know was needed.
type environ struct {
	*reading
	defaults []string
	missed   bool
}

func (e *environ) Get(name string) expand.Variable {
	value, ok := e.vars[name]
	switch i, err := strconv.Atoi(name); {
	case e.args == nil || ok:
	case name == "@", name == "*":
		return expand.Variable{Set: true, Kind: expand.Indexed, List: e.args[1:]}
	case name == "#":
		value, ok = strconv.Itoa(len(e.args)-1), true
	case err == nil && i >= len(e.args): // it is empty
		return expand.Variable{}
	case err == nil:
		value, ok = e.args[i], true
	}
	if ok {
		return expand.Variable{Set: true, Kind: expand.String, Str: value}
	}
	e.missed = e.missed || name != "IFS" && name != "PWD" && !slices.Contains(e.defaults, name)
	return expand.Variable{}
}

func (e *environ) Each(func(string, expand.Variable) bool) {}

func (e *environ) Set(name string, v expand.Variable) error {
	if v.Kind == expand.String && len(v.Str) <= maxValue {
		e.vars[name] = v.Str
	}
	return nil
}

// sleeps adds up the operands of sleep: numbers with s, m, h or d.
func sleeps(args []string) (sum time.Duration, bad string) {
	units := map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour}
	for _, arg := range args {
		unit, number := time.Second, arg
		if n := len(arg); n > 0 && units[arg[n-1]] != 0 {
			unit, number = units[arg[n-1]], arg[:n-1]
		}
		if arg == "infinity" || arg == "inf" {
			sum = Forever
			continue
		}
		n, err := strconv.ParseFloat(number, 64)
		if err != nil || !(n >= 0) {
			return 0, arg
		}
		sum = min(sum+time.Duration(min(n*float64(unit), float64(Forever))), Forever)
	}
	return sum, ""
}

// bashNodes are the nodes of a script that only bash and its like have.
var bashNodes = map[string]string{"TestClause": "[[", "ArithmCmd": "(( ))", "LetClause": "let",
	"CStyleLoop": "for (( ))", "ArrayExpr": "arrays", "ProcSubst": "<( )"}

// bashOnly names a construct of a script that only bash and its like have: other shells fail at it, or do otherwise.
// Empty if there is none.
func bashOnly(file *syntax.File) (what string) {
	syntax.Walk(file, func(n syntax.Node) bool {
		if what != "" {
			return false
		}
		what = bashNodes[strings.TrimPrefix(fmt.Sprintf("%T", n), "*syntax.")]
		switch n := n.(type) {
		case *syntax.FuncDecl:
			if n.RsrvWord {
				what = "function"
			}
		case *syntax.SglQuoted:
			if n.Dollar {
				what = "$' '"
			}
		case *syntax.ParamExp:
			if n.Slice != nil || n.Repl != nil || n.Index != nil || n.Names != 0 {
				what = "${ } of parts"
			}
		case *syntax.DeclClause:
			if slices.Contains([]string{"declare", "typeset", "nameref"}, n.Variant.Value) {
				what = n.Variant.Value
			}
		case *syntax.Redirect:
			if slices.Contains([]syntax.RedirOperator{syntax.RdrAll, syntax.AppAll, syntax.WordHdoc}, n.Op) {
				what = n.Op.String()
			}
		case *syntax.CallExpr:
			for i, w := range n.Args {
				if lit := w.Lit(); i == 0 && lit == "source" || lit == "pipefail" {
					what = lit
				}
			}
		case *syntax.Word:
			if what == "" && isBraced(n) {
				what = "{..}"
			}
		}
		return what == ""
	})
	return what
}

// isBraced reports whether bash makes several words of one: {1..3} or {a,b}.
func isBraced(w *syntax.Word) bool {
	parts := *w
	parts.Parts = slices.Clone(w.Parts)
	syntax.SplitBraces(&parts)
	return slices.ContainsFunc(parts.Parts, func(p syntax.WordPart) bool { _, is := p.(*syntax.BraceExp); return is })
}

// doubtful reads commands of which the manifest does not show how often they run, or how their shell reads them.
func (r *reading) doubtful(stmts []*syntax.Stmt, why string) result {
	child := r.fork()
	child.list(stmts)
	r.awaitsSockets, r.mayExit = r.awaitsSockets || child.awaitsSockets, r.mayExit || child.exits || child.mayExit
	r.add(Step{Do: Unknown, MayStop: summarize(child.steps).ends(), Text: why})
	return open
}
