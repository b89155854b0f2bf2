package meshconfig

import "strings"

// lineIndex maps paths of keys to lines (from 1) in block-style YAML or indented JSON; flow style is not in it. It only
// follows indentation: enough to locate a mistake, not to parse the text.
type lineIndex map[string]int

func (x lineIndex) line(path []string) int { return x[strings.Join(path, "\x00")] }

func indexLines(text string) lineIndex {
	type level struct {
		indent int
		path   string // of all keys down to here
	}
	x := lineIndex{}
	var above []level
	number := 0
	for line := range strings.Lines(strings.TrimPrefix(text, "\ufeff")) {
		number++
		rest := strings.TrimLeft(line, " ")
		indent := len(line) - len(rest)
		key, ok := leadingKey(rest)
		if !ok {
			continue
		}
		for len(above) > 0 && above[len(above)-1].indent >= indent {
			above = above[:len(above)-1]
		}
		path := key
		if len(above) > 0 {
			path = above[len(above)-1].path + "\x00" + key
		}
		above = append(above, level{indent, path})
		if _, twice := x[path]; !twice {
			x[path] = number
		}
	}
	return x
}

// leadingKey returns the key that a line begins with.
func leadingKey(line string) (string, bool) {
	line = strings.TrimRight(line, " \r\n")
	if line == "" || line[0] == '#' {
		return "", false
	}
	if quote := line[0]; quote == '"' || quote == '\'' {
		key, rest, ok := strings.Cut(line[1:], string(quote))
		return key, ok && strings.HasPrefix(strings.TrimLeft(rest, " "), ":")
	}
	if key, _, ok := strings.Cut(line, ": "); ok {
		return strings.TrimRight(key, " "), true
	}
	return strings.CutSuffix(line, ":")
}
