package logs

import (
	"strconv"
	"unicode/utf8"

	"github.com/lastcall-dev/lastcall/internal/printable"
)

// Clients write into logs, and people read logs in terminals. The controls U+0080 to U+009F begin escape sequences
// there, the marks of bidirectional text reverse the text behind them, and others hide text. So what strconv.IsPrint
// excludes is escaped.

const hexDigits = "0123456789abcdef"

// AppendText appends s with escapes as in Go's strings, but also of the single bytes that are no UTF-8. Quotation marks
// and backslashes are escaped.
func AppendText(b []byte, s string) []byte {
	return escape(b, s, func(b []byte, r rune, invalid byte) []byte {
		switch {
		case r == utf8.RuneError:
			return appendHex(append(b, `\x`...), uint32(invalid), 2)
		case r < utf8.RuneSelf:
			return appendHex(append(b, `\x`...), uint32(r), 2)
		case r <= 0xffff:
			return appendHex(append(b, `\u`...), uint32(r), 4)
		}
		return appendHex(append(b, `\U`...), uint32(r), 8)
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

func appendHex(b []byte, value uint32, digits int) []byte {
	for digits--; digits >= 0; digits-- {
		b = append(b, hexDigits[value>>(4*digits)&15])
	}
	return b
}
