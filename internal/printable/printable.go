// Package printable keeps text of other authors from controlling what shows it: a terminal, a log, a table.
package printable

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Requests, names and logs are written by others, and people read them in terminals. The controls U+0080 to U+009F
// begin escape sequences there, the marks of bidirectional text reverse the text behind them, and others hide text. So
// what strconv.IsPrint excludes is escaped.

// Text writes what is not printable, line ends too, as in Go.
func Text(s string) string {
	quoted := strconv.Quote(s)
	return strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(quoted[1 : len(quoted)-1])
}

// Lines is Text for several lines.
func Lines(s string) string {
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		lines[i] = Text(line)
	}
	return strings.Join(lines, "\n")
}

// JSON escapes, in valid JSON, what encoding/json leaves: it escapes control characters below U+0020 only. It returns b
// itself if there is nothing to escape.
func JSON(b []byte) []byte {
	for i, ch := range b {
		if ch < utf8.RuneSelf && ch != 0x7f {
			continue
		}
		out := append(make([]byte, 0, len(b)+64), b[:i]...)
		for _, r := range string(b[i:]) {
			if r == '\n' || r == utf8.RuneError || strconv.IsPrint(r) {
				out = utf8.AppendRune(out, r)
			} else {
				out = AppendJSONRune(out, r)
			}
		}
		return out
	}
	return b
}

// JSONWriter returns a writer of JSON that gets whole values, such as those of a json.Encoder.
func JSONWriter(to io.Writer) io.Writer { return writer{to} }

type writer struct{ to io.Writer }

func (w writer) Write(p []byte) (int, error) {
	_, err := w.to.Write(JSON(p))
	return len(p), err
}

// AppendJSONRune appends a rune as JSON's \u, beyond U+FFFF as two.
func AppendJSONRune(b []byte, r rune) []byte {
	if high, low := utf16.EncodeRune(r); high != utf8.RuneError {
		return AppendJSONRune(AppendJSONRune(b, high), low)
	}
	return fmt.Appendf(b, `\u%04x`, r)
}
