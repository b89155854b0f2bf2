package capture

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
)

// maxFile is more than the downward API can write: annotations of 256 KiB, with every byte escaped.
const maxFile = 2 << 20

// ReadAnnotations reads the annotations of the capture from the downward API's file (lines of key="value"). A missing
// file has none. internal/meshconfig reports errors in the rest of the file.
func ReadAnnotations(name string) (map[string]string, error) {
	file, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the pod's annotations: %w", err)
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, maxFile))
	if err != nil {
		return nil, fmt.Errorf("read the pod's annotations: %w", err)
	}
	annotations := map[string]string{}
	for line := range strings.SplitSeq(string(text), "\n") {
		key, quoted, _ := strings.Cut(strings.TrimSuffix(line, "\r"), "=")
		if !known(key) {
			continue
		}
		if annotations[key], err = strconv.Unquote(quoted); err != nil {
			return nil, fmt.Errorf("annotation %s in %s: %s: must be a value in double quotes, as the downward API writes it", key, name, brief(quoted))
		}
	}
	return annotations, nil
}

func known(annotation string) bool {
	return annotation == annotationStatusPort ||
		slices.ContainsFunc(Settings, func(s Setting) bool { return slices.Contains(s.Annotations, annotation) })
}
