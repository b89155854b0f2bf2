package meshconfig

import (
	"fmt"
	"strconv"
	"strings"
)

// parseAnnotations reads the downward API's file of annotations: lines of
// key="value", the value quoted as Go does (the kubelet writes %v=%q). Pilot-agent
// passes over a line without "="; here it is an error, because the kubelet
// never writes one: the file is not what it is taken for.
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
			return nil, fmt.Errorf("line %d: %q: want key=\"value\", as the downward API writes annotations", number, brief(line))
		}
		value, err := strconv.Unquote(quoted)
		if err != nil {
			return nil, fmt.Errorf("line %d: value of %s is %s: want a string in double quotes, with Go's escapes", number, key, brief(quoted))
		}
		annotations[key] = value
	}
	return annotations, nil
}
