package report

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"strings"

	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
	"github.com/lastcall-dev/lastcall/kube/lint"
)

// Write writes the findings as text, json, sarif, junit or github. version is lastcall's.
func Write(out io.Writer, format string, r *lint.Result, version string) error {
	switch format {
	case "json":
		return asJSON(out, append([]lint.Found{}, r.Findings...))
	case "sarif":
		return asJSON(out, sarifOf(r, version))
	case "junit":
		return junit(out, r)
	case "github":
		return github(out, r)
	}
	for _, f := range r.Findings {
		if _, err := fmt.Fprintln(out, terminal.Printable(f.String())); err != nil {
			return err
		}
	}
	return nil
}

func asJSON(out io.Writer, value any) error {
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

// github writes annotations as commands of GitHub's workflows: % and line ends are escaped, in properties also , and :
// (actions/toolkit, command.ts).
func github(out io.Writer, r *lint.Result) error {
	data := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	property := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
	for _, f := range r.Findings {
		if _, err := fmt.Fprintf(out, "::%s file=%s,line=%d,title=%s::%s\n", f.Severity, property.Replace(f.File), max(f.Line, 1), f.ID, data.Replace(message(f))); err != nil {
			return err
		}
	}
	return nil
}

// message is a finding without its place.
func message(f lint.Found) string {
	text := f.Text
	if f.Path != "" {
		text = f.Path + " " + text
	}
	if f.Object != "" {
		text = f.Object + ": " + text
	}
	return text
}

type testsuite struct {
	XMLName  xml.Name   `xml:"testsuite"`
	Name     string     `xml:"name,attr"`
	Tests    int        `xml:"tests,attr"`
	Failures int        `xml:"failures,attr"`
	Cases    []testcase `xml:"testcase"`
}

type testcase struct {
	Name    string   `xml:"name,attr"`
	Class   string   `xml:"classname,attr"`
	Failure *failure `xml:"failure"`
}

type failure struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr"`
	Text    string `xml:",chardata"`
}

// junit writes one test case for each finding, and a passed one if there is none.
func junit(out io.Writer, r *lint.Result) error {
	suite := testsuite{Name: "lastcallctl lint", Tests: max(len(r.Findings), 1), Failures: len(r.Findings)}
	for _, f := range r.Findings {
		suite.Cases = append(suite.Cases, testcase{Name: f.ID + " " + f.Object, Class: f.File, Failure: &failure{Message: f.Text, Type: string(f.Severity), Text: f.String()}})
	}
	if len(r.Findings) == 0 {
		suite.Cases = []testcase{{Name: Summary(r), Class: "lint"}}
	}
	if _, err := io.WriteString(out, xml.Header); err != nil {
		return err
	}
	encoder := xml.NewEncoder(out)
	encoder.Indent("", "  ")
	if err := encoder.Encode(suite); err != nil {
		return err
	}
	_, err := io.WriteString(out, "\n")
	return err
}

// Summary is one line about the whole examination.
func Summary(r *lint.Result) string {
	count := map[lint.Severity]int{}
	for _, f := range r.Findings {
		count[f.Severity]++
	}
	text := fmt.Sprintf("%s, %s, %d examined: %s, %s", plural(r.Files, "file"), plural(r.Objects, "object"), r.Examined,
		plural(count[lint.Error], "error"), plural(count[lint.Warning], "warning"))
	if r.Ignored > 0 {
		text += fmt.Sprintf(", %d ignored", r.Ignored)
	}
	if r.Templates > 0 {
		text += fmt.Sprintf("; %s not examined: render them first (helm template CHART | lastcallctl lint -f -)", plural(r.Templates, "template"))
	}
	return text
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
