package inject

import (
	"encoding/json"
	"reflect"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/lastcall-dev/lastcall/kube/manifest"
)

// appendYAML writes a value after a key or a dash at an indentation, as its JSON says, in block style and with its keys
// in order.
func appendYAML(out []byte, value reflect.Value, indent int, isElement bool) []byte {
	value = inner(value)
	first, below := isElement, indent+2
	entry := func(key string, v reflect.Value) {
		if first {
			out = append(out, ' ')
		} else {
			out = appendSpaces(append(out, '\n'), below)
		}
		if first = false; key == "" {
			out = append(out, '-')
		} else {
			out = append(appendScalar(out, key, below, true), ':')
		}
		out = appendYAML(out, v, below, key == "")
	}
	begin := len(out)
	switch kind := value.Kind(); {
	case kind == reflect.Struct && fieldsOf(value.Type()) != nil:
		for _, f := range fieldsOf(value.Type()) {
			if v := f.in(value); v.IsValid() {
				entry(f.name, v)
			}
		}
	case kind == reflect.Map:
		for _, key := range sorted(value.MapKeys()) {
			entry(key.String(), value.MapIndex(key))
		}
	case kind == reflect.Slice:
		if !isElement {
			below = indent
		}
		for i := range value.Len() {
			entry("", value.Index(i))
		}
	case kind == reflect.String:
		return appendScalar(append(out, ' '), value.String(), indent, false)
	case kind == reflect.Struct:
		return appendYAML(out, reflect.ValueOf(new(treeing).of(value)), indent, isElement)
	}
	if len(out) > begin {
		return out
	}
	text := []byte("null")
	if value.IsValid() {
		text, _ = json.Marshal(value.Interface()) // a number, a truth value, or empty
	}
	return append(append(out, ' '), text...)
}

func appendSpaces(out []byte, n int) []byte {
	for range n {
		out = append(out, ' ')
	}
	return out
}

// appendScalar writes a text as a scalar that all parsers read as a text; one of several lines as a block, which a key
// cannot be.
func appendScalar(out []byte, text string, indent int, isKey bool) []byte {
	if isWord(text) {
		return append(out, text...)
	}
	isPrintable := !strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) })
	isLine := !strings.Contains(text, "\n")
	switch {
	case isLine && isPrintable && isAmbiguous(text):
		return append(append(append(out, '"'), text...), '"')
	case isLine && isPrintable && isPlain(text):
		return append(out, text...)
	case isLine && isPrintable:
		return append(append(append(out, '\''), strings.ReplaceAll(text, "'", "''")...), '\'')
	case isKey, !isPrintable, strings.TrimSpace(text[:1]) == "", strings.Contains(text, " \n"),
		strings.TrimSpace(text[len(text)-2:]) == "", strings.HasSuffix(text, " "):
		quoted, _ := json.Marshal(text)
		return append(out, quoted...)
	}
	body, hasEnd := strings.CutSuffix(text, "\n")
	if out = append(out, '|'); !hasEnd {
		out = append(out, '-')
	}
	for line := range strings.SplitSeq(body, "\n") {
		if out = append(out, '\n'); line != "" {
			out = append(appendSpaces(out, indent+2), line...)
		}
	}
	return out
}

// isWord reports whether a text is a name, a path or an option, as most are.
func isWord(text string) bool {
	for i := range len(text) {
		if c := text[i]; c|0x20 < 'a' && c != '/' && c != '-' && (c < '0' || c > '9' || i == 0) || c|0x20 > 'z' {
			return false
		}
	}
	return text != "" && text != "-" && !strings.HasPrefix(text, "---") && manifest.IsText(text)
}

// isAmbiguous reports whether a parser of YAML 1.1 or 1.2 reads a plain text as something else: a number, also one to
// the base 60, a truth value, a time or null.
func isAmbiguous(text string) bool {
	return text == "" || text[0] >= 'A' && !manifest.IsText(text) ||
		strings.Contains(text, ":") && strings.Trim(text, "0123456789_:+-") == "" ||
		(&yaml.Node{Kind: yaml.ScalarNode, Value: text}).ShortTag() != "!!str"
}

// isPlain reports whether a text of one line needs no quotes.
func isPlain(text string) bool {
	first, rest := text[:1], text[1:]
	return !strings.ContainsAny(first, "#,[]{}&*!|>'\"%@` ") && !strings.HasPrefix(text, "---") &&
		!strings.HasPrefix(text, "...") && !(strings.Contains("-?:", first) && strings.HasPrefix(rest+" ", " ")) &&
		!strings.Contains(text+" ", ": ") && !strings.Contains(text, " #") && !strings.HasSuffix(text, " ")
}
