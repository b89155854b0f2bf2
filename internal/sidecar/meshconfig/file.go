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
