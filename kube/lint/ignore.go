package lint

import (
	"bytes"
	"regexp"
	"strings"
)

// ignores are the rules that comments switch off, by the lines for which they do so.
type ignores map[int][]string

// ignoreComment matches "# lastcall:ignore LC001 LC014", after which a reason may follow.
var ignoreComment = regexp.MustCompile(`#\s*lastcall:ignore\s+((?:LC[0-9]{3}[\s,]*)+)`)

// readIgnores finds the comments. One counts for its own line; alone on its line, for the next line that is not a
// comment; at the head of a document, for the whole document.
func readIgnores(text []byte) ignores {
	if !bytes.Contains(text, []byte("lastcall:ignore")) {
		return nil
	}
	all := ignores{}
	var whole, next []string
	isHead, number := true, 0
	for line := range strings.Lines(string(text)) {
		number++
		stripped := strings.TrimSpace(line)
		var rules []string
		if m := ignoreComment.FindStringSubmatch(line); m != nil {
			rules = strings.FieldsFunc(m[1], func(r rune) bool { return !strings.ContainsRune("LC0123456789", r) })
		}
		switch {
		case stripped == "---" || strings.HasPrefix(line, "--- "):
			isHead, whole, next = true, nil, nil
		case strings.HasPrefix(stripped, "#") && isHead:
			whole = append(whole, rules...)
		case strings.HasPrefix(stripped, "#"):
			next = append(next, rules...)
		case stripped != "":
			isHead = false
			all[number] = append(append(all[number], next...), rules...)
			next = nil
		}
		all[number] = append(all[number], whole...)
	}
	return all
}
