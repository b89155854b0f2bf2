package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/must"
)

// aName matches a first word that is no English word at the start of a sentence: it begins with a lower-case letter, or
// has a capital letter after one.
var aName = regexp.MustCompile(`^([a-z]\w*|\w*[a-z][A-Z]\w*)\b`)

// aTest matches the name of a test.
var aTest = regexp.MustCompile(`^(Test|Fuzz|Benchmark)`)

// misnamed returns the doc comments of a Go file that begin with a name other than the declared one, as a renamed
// function leaves them.
func misnamed(file string, content []byte) (found []string, err error) {
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, content, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	examine := func(doc *ast.CommentGroup, name string) {
		first := aName.FindString(doc.Text())
		if aTest.MatchString(name) && !aTest.MatchString(first) {
			return // may begin with the name of what it tests: gRPC, nginx
		}
		if first != "" && first != name {
			found = append(found, set.Position(doc.Pos()).String()+": the comment of "+name+" begins with "+first)
		}
	}
	for _, decl := range parsed.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			examine(d.Doc, d.Name.Name)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				t, ok := spec.(*ast.TypeSpec)
				switch {
				case !ok:
				case d.Lparen.IsValid():
					examine(t.Doc, t.Name.Name)
				default:
					examine(d.Doc, t.Name.Name)
				}
			}
		}
	}
	return found, nil
}

// TestDocNames parses all Go files.
func TestDocNames(t *testing.T) {
	list, err := exec.Command("git", "-C", top, "ls-files", "-z", "-co", "--exclude-standard", "*.go").Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	files := strings.Split(strings.TrimSuffix(string(list), "\x00"), "\x00")
	if len(files) < 100 {
		t.Fatalf("only %d Go files", len(files))
	}
	for _, name := range files {
		content, err := os.ReadFile(filepath.Join(top, name))
		if os.IsNotExist(err) || strings.Contains(name, "testdata/") {
			continue
		}
		must.Do(t, err)
		found, err := misnamed(name, content)
		must.Do(t, err)
		for _, f := range found {
			t.Error(f)
		}
	}
}

func TestMisnamed(t *testing.T) {
	for source, want := range map[string]int{
		"// look reads.\nfunc look() {}":                             0,
		"// look reads.\nfunc lookLocked() {}":                       1,
		"// TestApp starts.\nfunc TestAppStarts() {}":                1,
		"// nginx starts.\nfunc TestNginx() {}":                      0,
		"// Look reads.\nfunc read() {}":                             0, // may be a word
		"// HTTP is a protocol.\ntype protocol int":                  0,
		"// sockets are open.\ntype table []int":                     1,
		"type (\n\t// one is first.\n\ttwo int\n)":                   1,
		"// old names.\nvar x int":                                   0,
		"// lookAgain waits.\nfunc (c conn) checkLaterLocked() {}":   1,
		"// The table of sockets.\nfunc table() {}\n\nfunc bare(){}": 0,
	} {
		found, err := misnamed("a.go", []byte("package a\n\n"+source+"\n"))
		if err != nil || len(found) != want {
			t.Errorf("%q: %q, %v; want %d", source, found, err, want)
		}
	}
}
