package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var (
	entry      = regexp.MustCompile(`(?m)^\t(\S.*?)(?:  +|\n\t +)`) // a name and its description
	annotation = regexp.MustCompile(`lastcall\.dev/[a-z-]+(: ("true"|[a-z]+))?`)
)

// annotations is the documentation of package inject, from its first heading on.
func annotations() (string, error) {
	files, err := files("kube/inject")
	if err != nil {
		return "", err
	}
	for _, f := range files {
		if f.Doc != nil {
			_, text, _ := strings.Cut(f.Doc.Text(), "\n# ")
			text = entry.ReplaceAllString(text, "  - $1 – ")
			text = strings.ReplaceAll(text, "\n\t ", "\n    ")
			text = strings.ReplaceAll(text, "\n\t", "\n  - ")
			printer := comment.Printer{HeadingLevel: 2, HeadingID: func(*comment.Heading) string { return "" }}
			text = string(printer.Markdown(new(comment.Parser).Parse("# " + text)))
			return "# Annotations of pods\n\n" + annotation.ReplaceAllString(text, "`$0`"), nil
		}
	}
	return "", fmt.Errorf("package inject has no comment")
}

// files parses a folder of Go files, without the tests, and those below it.
func files(top string) (all []*ast.File, err error) {
	err = filepath.WalkDir(top, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		all = append(all, f)
		return err
	})
	return all, err
}

var metric = regexp.MustCompile(`^(lastcall|envoy)_[a-z0-9_]+$`)

// metrics lists the names of metrics in calls and composite literals, next to its help.
func metrics() (string, error) {
	var b strings.Builder
	b.WriteString("# Metrics\n\n[Observability](../observability.md#metrics) describes labels and scrapes.\n")
	for _, part := range [][2]string{
		{"The agent and lastcall run", "internal/sidecar"},
		{"The controller", "kube/webhook"},
		{"The controller's Events", "kube/events"},
		{"The observer", "kube/observe"},
	} {
		files, err := files(part[1])
		if err != nil {
			return "", err
		}
		help := map[string]string{}
		for _, f := range files {
			ast.Inspect(f, func(n ast.Node) bool {
				var args []ast.Expr
				switch n := n.(type) {
				case *ast.CallExpr:
					args = n.Args
				case *ast.CompositeLit:
					for _, e := range n.Elts {
						if kv, ok := e.(*ast.KeyValueExpr); ok {
							args = append(args, kv.Value)
						}
					}
				}
				if len(args) >= 2 && metric.MatchString(literal(args[0])) && strings.HasSuffix(literal(args[1]), ".") {
					help[literal(args[0])] = strings.ReplaceAll(literal(args[1]), "%d", "N")
				}
				return true
			})
		}
		fmt.Fprintf(&b, "\n## %s\n\n", part[0])
		for _, name := range slices.Sorted(maps.Keys(help)) {
			fmt.Fprintf(&b, "- `%s`: %s\n", name, help[name])
		}
	}
	return b.String(), nil
}

// literal is the text of the first string in an expression.
func literal(e ast.Expr) (text string) {
	ast.Inspect(e, func(n ast.Node) bool {
		if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING && text == "" {
			text, _ = strconv.Unquote(l.Value)
		}
		return text == ""
	})
	return text
}

// report describes the JSON of drain.Report.
func report() (string, error) {
	files, err := files("drain")
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("# The report of a termination\n\n" +
		"One JSON object, in the log and in the pod's termination message. [Debugging](../debugging.md) explains it.\n")
	row := func(name string, of *ast.Ident, comments *ast.CommentGroup) {
		text := strings.TrimPrefix(strings.Join(strings.Fields(comments.Text()), " "), of.Name+" ")
		text = strings.TrimPrefix(text, "is ")
		fmt.Fprintf(&b, "| `%s` | %s |\n", name, text)
	}
	for _, name := range []string{"Report", "Verdict", "Span", "Conversation", "Finish"} {
		fmt.Fprintf(&b, "\n## %s\n\n| | |\n|---|---|\n", name)
		for _, f := range files {
			ast.Inspect(f, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.TypeSpec:
					s, isStruct := n.Type.(*ast.StructType)
					if !isStruct || n.Name.Name != name {
						return false
					}
					for _, field := range s.Fields.List {
						if field.Tag != nil {
							tag, _ := strconv.Unquote(field.Tag.Value)
							member, _, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ",")
							row(member, field.Names[0], cmp.Or(field.Doc, field.Comment))
						}
					}
				case *ast.ValueSpec:
					if t, ok := n.Type.(*ast.Ident); ok && t.Name == name && len(n.Values) == 1 {
						row(literal(n.Values[0]), n.Names[0], cmp.Or(n.Doc, n.Comment))
					}
				}
				return true
			})
		}
	}
	return b.String(), nil
}
