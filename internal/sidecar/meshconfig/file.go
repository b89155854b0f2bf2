package meshconfig

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// maxFile is the most that a file may hold. A ConfigMap has at most 1 MiB, the annotations of a pod 256 KiB, which the
// downward API's escapes can make four times as long.
const maxFile = 2 << 20

// readBounded is os.ReadFile that stops soon after maxFile bytes.
func readBounded(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(io.LimitReader(f, maxFile+1))
}

// read returns a file's text without a byte order mark; false when there is none. A missing file is not reported if it
// is the usual one.
func (r *resolver) read(readFile func(string) ([]byte, error), what, name string, src Source, usual string) (string,
	bool) {
	if name == "" {
		return "", false
	}
	text, err := readFile(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if name != usual {
			r.warn(src, what, "no such file; ignored")
		}
		return "", false
	case err != nil:
		r.fail(fmt.Errorf("read %s: %w: must be a readable file, or missing", what, err))
		return "", false
	case len(text) > maxFile:
		r.fail(fmt.Errorf("read %s: %s has more than %d bytes: must be the file that Istio's injector mounts", what, name,
			maxFile))
		return "", false
	}
	return strings.TrimPrefix(string(text), "\ufeff"), true
}

// parseAnnotations parses the downward API's file of annotations: lines of key="value", the value quoted as in Go (the
// kubelet writes %v=%q). Pilot-agent skips a line without "="; here it is an error, because the kubelet never writes
// one: it is not such a file.
func parseAnnotations(text string) (map[string]string, error) {
	annotations := map[string]string{}
	number := 0
	for line := range strings.SplitSeq(text, "\n") {
		number++
		line = strings.TrimSuffix(line, "\r")
		if strings.TrimSpace(line) == "" {
			continue
		}
		key, quoted, ok := strings.Cut(line, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("line %d: %q: must be key=\"value\", as the downward API writes annotations", number,
				brief(line))
		}
		value, err := strconv.Unquote(quoted)
		if err != nil {
			return nil, fmt.Errorf("line %d: value of %s is %s: must be a string in double quotes, with Go's escapes", number,
				key, brief(quoted))
		}
		annotations[key] = value
	}
	return annotations, nil
}

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
