package envoy

import (
	"regexp"
	"strings"
)

// istioKnown are the lines of a poll that pilot-agent ignores (pkg/envoy/admin.go): the names are its own.
var istioKnown = regexp.MustCompile(`^listener\.(0\.0\.0\.0_(15021|15090)|admin|admin\.main_thread)\.downstream_cx_active$`)

// istioFilter is the filter of pilot-agent's poll.
const istioFilter = `downstream_cx_active$`

// istioCount counts as pilot-agent does, faults included: a listener with worker_
// in its name is never counted, IPv6's known listeners always are. known is false
// for its "not available": an empty body, or a sum of -1.
func istioCount(body []byte) (active int, known bool) {
	known = len(body) > 0
	for name, value := range ParseStats(body) {
		if strings.HasPrefix(name, "listener.") && !strings.Contains(name, "worker_") &&
			!strings.HasPrefix(name, "listener.envoy_internal_") && !istioKnown.MatchString(name) {
			active += int(value)
		}
	}
	return active, known && active != -1
}
