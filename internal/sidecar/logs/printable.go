package logs

import (
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/lastcall-dev/lastcall/internal/printable"
)

// AppendText appends s with escapes as in Go's strings, but also of the single bytes that are no UTF-8. Quotation marks
// and backslashes are escaped.
func AppendText(b []byte, s string) []byte {
	return escape(b, s, func(b []byte, r rune, invalid byte) []byte {
		switch {
		case r == utf8.RuneError:
			return fmt.Appendf(b, `\x%02x`, invalid)
		case r < utf8.RuneSelf:
			return fmt.Appendf(b, `\x%02x`, r)
		case r <= 0xffff:
			return fmt.Appendf(b, `\u%04x`, r)
		}
		return fmt.Appendf(b, `\U%08x`, r)
	})
}

// AppendJSON appends s as the content of a JSON string (RFC 8259, 7). Invalid UTF-8 becomes U+FFFD.
func AppendJSON(b []byte, s string) []byte {
	return escape(b, s, func(b []byte, r rune, _ byte) []byte {
		if r == utf8.RuneError {
			return utf8.AppendRune(b, r)
		}
		return printable.AppendJSONRune(b, r)
	})
}

// escape appends s. other appends an unprintable character: a rune, or utf8.RuneError and the byte that is no UTF-8.
func escape(b []byte, s string, other func(b []byte, r rune, invalid byte) []byte) []byte {
	for i := 0; i < len(s); {
		ch := s[i]
		switch {
		case ch == '"' || ch == '\\':
			b = append(b, '\\', ch)
		case ch >= ' ' && ch < 0x7f:
			b = append(b, ch)
		case ch < utf8.RuneSelf:
			b = other(b, rune(ch), 0)
		default:
			r, size := utf8.DecodeRuneInString(s[i:])
			if size == 1 || !strconv.IsPrint(r) {
				b = other(b, r, ch)
			} else {
				b = append(b, s[i:i+size]...)
			}
			i += size
			continue
		}
		i++
	}
	return b
}
