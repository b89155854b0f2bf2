package meshconfig

import (
	"fmt"
	"strconv"
	"strings"
)

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
			return nil, fmt.Errorf("line %d: %q: must be key=\"value\", as the downward API writes annotations", number, brief(line))
		}
		value, err := strconv.Unquote(quoted)
		if err != nil {
			return nil, fmt.Errorf("line %d: value of %s is %s: must be a string in double quotes, with Go's escapes", number, key, brief(quoted))
		}
		annotations[key] = value
	}
	return annotations, nil
}
