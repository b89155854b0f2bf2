package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
	"github.com/lastcall-dev/lastcall/kube/lint"
)

// On a terminal findings are wrapped and coloured; elsewhere each is one line.
func TestFindingsOnATerminal(t *testing.T) {
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("a terminal:", err)
	}
	defer func() { _ = ours.Close() }()
	fd := int(ours.Fd())
	must.Do(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	must.Do(t, err)
	its, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	must.Do(t, err)
	defer func() { _ = its.Close() }()
	must.Do(t, unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 25, Col: 60}))
	r := &lint.Result{Findings: []lint.Found{{File: "a.yaml", Line: 11, Object: "Pod web",
		Finding: lint.Finding{ID: "LC001", Severity: lint.Error, Path: "spec", Text: strings.Repeat("too short ", 20) + "\x1b[2J"}}}}
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "xterm")
	must.Do(t, writeFindings(its, cli.PlainText, r))
	_, _ = its.WriteString("$")
	var shown string
	for b := make([]byte, 4096); !strings.HasSuffix(shown, "$"); {
		n, err := ours.Read(b)
		must.Do(t, err)
		shown += string(b[:n])
	}
	first, rest, _ := strings.Cut(shown, "\r\n")
	if first != "a.yaml:11: \x1b[31merror LC001\x1b[0m" || strings.Contains(rest, "\x1b") {
		t.Errorf("%q", shown)
	}
	for line := range strings.Lines(rest) {
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\r\n")); n > 60 {
			t.Errorf("%d columns of 60: %q", n, line)
		}
	}
	var out strings.Builder
	must.Do(t, writeFindings(&out, cli.PlainText, r))
	if strings.Count(out.String(), "\n") != 1 || strings.Contains(out.String(), "\x1b") {
		t.Errorf("not a line for grep: %q", &out)
	}
}
