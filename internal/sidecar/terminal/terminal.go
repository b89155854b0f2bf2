// Package terminal prints the progress of a drain for a person at a terminal, in addition to the log.
package terminal

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/printable"
)

// Terminal is a terminal with a person. A nil one prints nothing.
type Terminal struct{ w io.Writer }

// On returns a Terminal that prints to w, or nil if f is not a terminal.
func On(w io.Writer, f *os.File) *Terminal {
	if !Is(f) {
		return nil
	}
	return &Terminal{w}
}

// Is reports whether f is a terminal: a character device, but not the null device.
func Is(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}

// Draining announces a drain that Ctrl-C has begun.
func (t *Terminal) Draining(first drain.Signal, c drain.Config) {
	if t == nil || first != drain.Interrupt {
		return
	}
	limit, isLimited := c.Limit()
	switch {
	case !isLimited:
		_, _ = fmt.Fprintln(t.w, "draining until no connection is open, as Istio does; Ctrl-\\ dumps all goroutines and ends")
	case c.Mode != drain.ExitOnZero: // Istio's agent ignores a second signal
		_, _ = fmt.Fprintf(t.w, "draining for %s, as Istio does\n", Seconds(limit))
	default:
		_, _ = fmt.Fprintf(t.w, "draining, up to %s; Ctrl-C again ends at once\n", Seconds(limit))
	}
}

// WaitingForApp announces how long the app may take to end.
func (t *Terminal) WaitingForApp(limit time.Duration) {
	if t != nil {
		_, _ = fmt.Fprintf(t.w, "waiting for the app to end, up to %s; Ctrl-C kills it\n", Seconds(limit.Round(time.Second)))
	}
}

// Seconds writes a duration as people do: "28 s", "0.5 s".
func Seconds(d time.Duration) string {
	return strconv.FormatFloat(d.Round(10*time.Millisecond).Seconds(), 'f', -1, 64) + " s"
}

// Count is a number of things: "1 request", "3 requests". It adds the s of the plural.
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Measured writes a measured duration: "5.07 s".
func Measured(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

// Printable keeps another's text from controlling a terminal or breaking a table: escapes, line ends and what else is
// not printable are written as in Go.
func Printable(s string) string { return printable.Text(s) }

// Shorten cuts a text at a rune's boundary: to at most n bytes, with the … at its end.
func Shorten(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n -= len("…"); n > 0 && !utf8.RuneStart(text[n]); n-- {
	}
	return text[:n] + "…"
}

// Wrap fills the paragraphs of a text to at most columns. Lines that begin with a space stay as they are.
func Wrap(text string, columns int) string {
	var out []string
	var words []string
	flush := func() {
		line := ""
		for _, word := range words {
			switch {
			case line == "":
				line = word
			case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= columns:
				line += " " + word
			default:
				out = append(out, line)
				line = word
			}
		}
		if line != "" {
			out = append(out, line)
		}
		words = nil
	}
	for line := range strings.SplitSeq(text, "\n") {
		if line == "" || strings.HasPrefix(line, " ") {
			flush()
			out = append(out, line)
			continue
		}
		words = append(words, strings.Fields(line)...)
	}
	flush()
	return strings.Join(out, "\n")
}
