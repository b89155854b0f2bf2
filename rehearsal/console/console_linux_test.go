package console

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// openTerminal opens a terminal of so many columns, and the end at which it is looked at.
func openTerminal(t *testing.T, columns uint16) (its, ours *os.File) {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("a terminal:", err)
	}
	t.Cleanup(func() { _ = ours.Close() })
	fd := int(ours.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if its, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = its.Close() })
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 25, Col: columns}); err != nil {
		t.Fatal(err)
	}
	return its, ours
}

// A line fits its terminal, and is written again only when it has changed.
func TestTerminal(t *testing.T) {
	t.Setenv("NO_COLOR", "1")
	its, ours := openTerminal(t, 40)
	if got := StyleFor(its).Width(); got != 40 {
		t.Fatalf("%d columns", got)
	}
	p := &Progress{f: its, line: func() string { return strings.Repeat("long ", 20) }}
	for range 3 {
		p.draw()
	}
	p.line = func() string { return "short" }
	p.draw()
	_, _ = its.WriteString("$")
	var shown string
	for b := make([]byte, 4096); !strings.HasSuffix(shown, "$"); {
		n, err := ours.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		shown += string(b[:n])
	}
	lines := strings.Split(strings.TrimSuffix(shown, "$"), "\x1b[K")
	if len(lines) != 3 || lines[1] != "\rshort" {
		t.Fatalf("drawn %q, want each line once", shown)
	}
	if n := len([]rune(strings.TrimPrefix(lines[0], "\r"))); n > 39 || n < 35 {
		t.Errorf("the line has %d columns on a terminal of 40: %q", n, lines[0])
	}
}
