package outcome

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
)

type junitSuites struct {
	XMLName xml.Name   `xml:"testsuites"`
	Suite   junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Time     string      `xml:"time,attr"`
	Stamp    string      `xml:"timestamp,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	Time    string        `xml:"time,attr"`
	Failure *junitFailure `xml:"failure,omitempty"`
	Skipped *junitFailure `xml:"skipped,omitempty"`
	Out     string        `xml:"system-out,omitempty"`
}

type junitFailure struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// WriteJUnit writes the result as JUnit's XML: a test case for each strategy. The first one, which decides, fails if it lost
// requests; another one is skipped.
func (r *Result) WriteJUnit(w io.Writer) error {
	class := "rehearse"
	if r.Workload != "" {
		class += "." + r.Workload
	}
	suite := junitSuite{Name: class, Time: fmt.Sprintf("%.3f", ms(r.TookMS).Seconds()), Stamp: r.Began.UTC().Format("2006-01-02T15:04:05")}
	for i, row := range r.Rows {
		c := junitCase{Class: class, Name: row.Strategy, Time: fmt.Sprintf("%.3f", ms(row.GoneMS()).Seconds()), Out: row.Words}
		if row.Lost > 0 {
			var text strings.Builder
			for _, l := range row.Losses {
				fmt.Fprintf(&text, "%d × %s: %s %s (%s)\n    %s\n", l.Count, l.Request, l.Reason, l.Phase, l.Span(), l.Fix)
			}
			f := &junitFailure{Message: fmt.Sprintf("lost %d of %d requests", row.Lost, row.Requests), Text: text.String()}
			if i == 0 {
				c.Failure = f
				suite.Failures++
			} else {
				c.Skipped = f
				suite.Skipped++
			}
		}
		suite.Cases = append(suite.Cases, c)
	}
	suite.Tests = len(suite.Cases)
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(junitSuites{Suite: suite}); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}
