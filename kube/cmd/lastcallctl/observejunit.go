package main

import (
	"encoding/xml"
	"fmt"
	"io"

	"github.com/lastcall-dev/lastcall/kube/losses"
)

// suite is the root of a JUnit report, as CI systems read it.
type suite struct {
	XMLName  xml.Name   `xml:"testsuite"`
	Name     string     `xml:"name,attr"`
	Tests    int        `xml:"tests,attr"`
	Failures int        `xml:"failures,attr"`
	Errors   int        `xml:"errors,attr"`
	Skipped  int        `xml:"skipped,attr"`
	Cases    []testCase `xml:"testcase"`
}

type testCase struct {
	Class   string   `xml:"classname,attr"`
	Name    string   `xml:"name,attr"`
	Time    string   `xml:"time,attr"` // seconds
	Failure *message `xml:"failure"`
	Error   *message `xml:"error"`
	Skipped *message `xml:"skipped"`
}

type message struct {
	Text string `xml:"message,attr"`
}

// writeJUnit writes a test case for each termination: a failure if it lost requests, skipped if it was not observed
// completely. A pod without an observer is an error.
func (t *observeTable) writeJUnit(w io.Writer) error {
	s := suite{Name: t.name, Tests: len(t.kept) + len(t.missed), Errors: len(t.missed)}
	for i := range t.kept {
		one := &t.kept[i]
		c := testCase{Class: t.name, Name: one.Pod, Time: fmt.Sprintf("%.3f", one.Seconds)}
		switch one.Verdict {
		case losses.Lost:
			s.Failures++
			c.Failure = &message{fmt.Sprintf("%d requests lost: %s", one.Traffic.Lost.Total(), losses.Why(one.Traffic.Lost))}
		case losses.Killed:
			s.Failures++
			c.Failure = &message{one.Doubts()}
		case losses.Unknown:
			s.Skipped++
			c.Skipped = &message{one.Doubts()}
		}
		s.Cases = append(s.Cases, c)
	}
	for _, m := range t.missed {
		s.Cases = append(s.Cases, testCase{Class: t.name, Name: m.pod, Time: "0", Error: &message{m.why}})
	}
	encoder := xml.NewEncoder(w)
	encoder.Indent("", "  ")
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	if err := encoder.Encode(s); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}
