package console

import (
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// Width is what everything is laid out for, columns.
const Width = 100

// Style colours text, or leaves it.
type Style struct{ Colour bool }

// StyleFor colours on a terminal, unless NO_COLOR is set to anything
// (no-color.org) or TERM is dumb.
func StyleFor(f *os.File) Style {
	return Style{IsTerminal(f) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// IsTerminal tells a terminal from a file or pipe.
func IsTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), termios)
	return err == nil
}

// Columns is the width of a terminal, Width where it is unknown.
func Columns(f *os.File) int {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 {
		return Width
	}
	return int(size.Col)
}

func (s Style) paint(code, text string) string {
	if !s.Colour || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Good is for what one hopes for.
func (s Style) Good(text string) string { return s.paint("32", text) }

// Bad is for what one does not.
func (s Style) Bad(text string) string { return s.paint("31", text) }

// Dim is for what may be passed over.
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

// Left fills text up to width columns. Paint after it, not before.
func Left(text string, width int) string {
	return text + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(text)))
}

// Right fills text up to width columns from the left.
func Right(text string, width int) string {
	return strings.Repeat(" ", max(0, width-utf8.RuneCountInString(text))) + text
}

// Heading is a title with a line up to Width.
func (s Style) Heading(title string) string {
	return s.Bold(title) + " " + s.Dim(strings.Repeat("─", max(3, Width-utf8.RuneCountInString(title)-1)))
}
