package pod

import (
	"slices"

	"mvdan.cc/sh/v3/syntax"
)

// bashOnly names a construct of a script that only bash and its like have: other shells fail at it, or do otherwise.
// Empty if there is none.
func bashOnly(file *syntax.File) (what string) {
	syntax.Walk(file, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.TestClause:
			what = "[["
		case *syntax.ArithmCmd:
			what = "(( ))"
		case *syntax.LetClause:
			what = "let"
		case *syntax.CStyleLoop:
			what = "for (( ))"
		case *syntax.ArrayExpr:
			what = "arrays"
		case *syntax.ProcSubst:
			what = "<( )"
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

// doubtful reads a script of which the manifest does not show how its shell reads it.
func (r *reading) doubtful(file *syntax.File, why string) result {
	child := r.fork()
	child.list(file.Stmts)
	h := summarize(child.steps)
	r.add(Step{Do: Unknown, MayStop: h.Stops || h.MayStop, Text: why})
	return open
}
