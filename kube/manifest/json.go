package manifest

import (
	stdjson "encoding/json"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	sigs "sigs.k8s.io/yaml"
)

// appendJSON writes a node as the API server's parser reads it, which knows YAML 1.1: yes is true. It returns false for
// what only that parser decides: aliases, merges, duplicates, and keys that are no texts.
func appendJSON(out []byte, n *yaml.Node) ([]byte, bool) {
	ok := true
	switch n.Kind {
	case yaml.MappingNode:
		seen := make(map[string]bool, len(n.Content)/2)
		out = append(out, '{')
		for i := 0; i+1 < len(n.Content) && ok; i += 2 {
			key, at := n.Content[i], len(out)
			if out, ok = appendJSON(out, key); !ok || out[at] != '"' || seen[key.Value] || key.Tag == "!!merge" {
				return nil, false
			}
			seen[key.Value] = true
			out, ok = appendJSON(append(out, ':'), n.Content[i+1])
			out = append(out, ',')
		}
		return closed(out, '{', '}'), ok
	case yaml.SequenceNode:
		out = append(out, '[')
		for i := 0; i < len(n.Content) && ok; i++ {
			out, ok = appendJSON(out, n.Content[i])
			out = append(out, ',')
		}
		return closed(out, '[', ']'), ok
	case yaml.ScalarNode:
		return appendScalar(out, n)
	}
	return nil, false
}

// closed ends a list, whose elements have a comma each.
func closed(out []byte, begin, end byte) []byte {
	if last := len(out) - 1; last >= 0 && out[last] != begin {
		out = out[:last]
	}
	return append(out, end)
}

// appendScalar writes a scalar; what may be a number, a truth value or a time in YAML 1.1 is that parser's to decide.
func appendScalar(out []byte, n *yaml.Node) ([]byte, bool) {
	text := n.Value
	switch isPlain := n.Style == 0; {
	case isPlain && (text == "true" || text == "false" || isWhole(text)):
		return append(out, text...), true
	case isPlain && !IsText(text):
		js, err := sigs.YAMLToJSON([]byte(text))
		return append(out, js...), err == nil
	case strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' || r == '"' || r == '\\' }):
		js, err := stdjson.Marshal(text)
		return append(out, js...), err == nil
	}
	return append(append(append(out, '"'), text...), '"'), true
}

// isWhole reports whether a plain scalar is a whole number of few digits, as JSON writes it.
func isWhole(text string) bool {
	return len(text) > 0 && len(text) < 18 && text[0] != '0' && strings.Trim(text, "0123456789") == "" || text == "0"
}

var words = []string{"y", "n", "yes", "no", "on", "off", "true", "false", "null", "~", "<<"}

// IsText reports whether a plain scalar is certainly a text.
func IsText(text string) bool {
	if text == "" {
		return false
	}
	switch first, last := text[0], text[len(text)-1]|0x20; {
	case strings.IndexByte("yYnNtTfFoO~<", first) >= 0:
		return len(text) > len("false") || !slices.Contains(words, strings.ToLower(text))
	case first >= '0' && first <= '9' && last > 'f' && last < 'z': // 100m: no digit, not even a hexadecimal one
		return true
	case first == '-' && len(text) > 1 && (text[1] == '-' || text[1]|0x20 >= 'a' && text[1]|0x20 <= 'z'): // --flag, -f
		return true
	case strings.IndexByte("+-.0123456789", first) >= 0:
		return text == "-" || strings.ContainsAny(text, " \n:") // a time is a text too
	}
	return true
}
