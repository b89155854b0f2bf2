// Package console writes for people: colours on a terminal, a line of progress, aligned columns.
package console

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
)

// Width is the number of columns that all output fits where there is no terminal.
const Width = 80

// Style colours text, or leaves it as it is, and knows how wide a line may be.
type Style struct {
	Colour  bool
	Columns int // 0 for Width
}

// StyleFor colours on a terminal, unless NO_COLOR is set (no-color.org) or TERM is dumb.
func StyleFor(f *os.File) Style {
	return Style{terminal.Is(f) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb", Columns(f)}
}

// Width is how many columns a line may have.
func (s Style) Width() int { return cmp.Or(s.Columns, Width) }

// Wrap writes text behind an indentation, in lines of at most Width columns. Lines after the first are indented by two
// more.
func (s Style) Wrap(indent, text string) string {
	lines := terminal.Wrap(terminal.Printable(text), s.Width()-len(indent)-2)
	return indent + strings.ReplaceAll(lines, "\n", "\n"+indent+"  ")
}

// Columns is the width of a terminal, or Width if it is unknown.
func Columns(f *os.File) int {
	columns, _, err := term.GetSize(int(f.Fd()))
	if err != nil || columns == 0 {
		return Width
	}
	return columns
}

func (s Style) paint(code, text string) string {
	if !s.Colour || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Good marks a good outcome.
func (s Style) Good(text string) string { return s.paint("32", text) }

// Bad marks a bad outcome.
func (s Style) Bad(text string) string { return s.paint("31", text) }

// Dim is for details.
func (s Style) Dim(text string) string { return s.paint("2", text) }

// Bold is for headings.
func (s Style) Bold(text string) string { return s.paint("1", text) }

// Mark is ✓ or ✗.
func (s Style) Mark(ok bool) string {
	if ok {
		return s.Good("✓")
	}
	return s.Bad("✗")
}

// Left pads text on the right to width columns. Colour it afterwards: codes would count as columns.
func Left(text string, width int) string {
	return text + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(text)))
}

// Right pads text on the left to width columns.
func Right(text string, width int) string {
	return strings.Repeat(" ", max(0, width-utf8.RuneCountInString(text))) + text
}

// Heading is a title with a rule to Width.
func (s Style) Heading(title string) string {
	return s.Bold(title) + " " + s.Dim(strings.Repeat("─", max(3, s.Width()-utf8.RuneCountInString(title)-1)))
}

// Cut shortens text to width columns.
func Cut(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return strings.TrimRight(string([]rune(text)[:width-1]), " ,") + "…"
}

// Millis formats measured milliseconds as terminal.Measured does: "5.07 s".
func Millis(ms float64) string { return fmt.Sprintf("%.2f s", ms/1000) }

// Answer is a response's status, and after how many milliseconds it was complete or ended early; status 0 is none.
func Answer(status int, isCut bool, tookMS float64) string {
	took := Right(Millis(tookMS), 8)
	switch {
	case status == 0:
		return "none after" + took
	case isCut:
		return fmt.Sprintf("%d cut at%s", status, took)
	}
	return fmt.Sprintf("%d after%s", status, took)
}

// Lag is how many milliseconds something came too late; negative is unknown.
func Lag(ms float64) string {
	switch {
	case ms < 0:
		return "-"
	case ms < 1000:
		return fmt.Sprintf("%.0f ms", ms)
	}
	return Millis(ms)
}

// Table is a text that is written line by line.
type Table struct {
	*bufio.Writer
	Style
}

// NewTable writes to w until Flush, which returns the first error.
func NewTable(w io.Writer, s Style) *Table { return &Table{bufio.NewWriter(w), s} }

// Line writes one.
func (t *Table) Line(format string, args ...any) { _, _ = fmt.Fprintf(t, format+"\n", args...) }

// Text writes text in lines that fit, behind an indentation.
func (t *Table) Text(indent, format string, args ...any) {
	t.Line("%s", t.Wrap(indent, fmt.Sprintf(format, args...)))
}

// Detail is Text for details.
func (t *Table) Detail(indent, format string, args ...any) {
	t.Line("%s", t.Dim(t.Wrap(indent, fmt.Sprintf(format, args...))))
}

// progressPeriod is the shortest time between two rewrites of the line.
const progressPeriod = time.Second

// Progress shows the state of a long operation on a terminal, in one line that is rewritten when it changes. A nil
// Progress shows nothing.
type Progress struct {
	f     *os.File
	style Style

	mu    sync.Mutex // guards the fields below
	line  func() string
	drawn string

	done  chan struct{}
	ended sync.WaitGroup
}

// NewProgress starts to show line on f, until End; nil if f is no terminal.
func NewProgress(f *os.File, line func() string) *Progress {
	if f == nil || !terminal.Is(f) {
		return nil
	}
	p := &Progress{f: f, style: StyleFor(f), line: line, done: make(chan struct{})}
	p.ended.Go(p.run)
	return p
}

// Show replaces the line, at once.
func (p *Progress) Show(line func() string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line = line
	p.draw()
}

// End removes the line.
func (p *Progress) End() {
	if p == nil {
		return
	}
	close(p.done)
	p.ended.Wait()
	_, _ = fmt.Fprint(p.f, "\r\x1b[K")
}

func (p *Progress) run() {
	tick := time.NewTicker(progressPeriod)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			p.mu.Lock()
			p.draw()
			p.mu.Unlock()
		case <-p.done:
			return
		}
	}
}

// draw is called with mu held. The terminal's last column stays free: text in it may wrap, and a wrapped line would be
// repeated instead of rewritten.
func (p *Progress) draw() {
	text := Cut(p.line(), max(1, Columns(p.f)-1))
	if text == p.drawn {
		return
	}
	p.drawn = text
	_, _ = fmt.Fprint(p.f, "\r", p.style.Dim(text), "\x1b[K")
}
