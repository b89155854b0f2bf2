// Package timers has the environment variables that set a termination's timers, and parses them. The agent, the
// gateway and the Go library read the same ones.
package timers

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// The variables. All but GracePeriod hold durations.
const (
	GracePeriod  = "TERMINATION_GRACE_PERIOD_SECONDS"
	MinimumDrain = "MINIMUM_DRAIN_DURATION"
	QuietTime    = "LASTCALL_QUIET_TIME"
	IdleGrace    = "LASTCALL_IDLE_GRACE"
	Margin       = "LASTCALL_LAST_CALL_MARGIN"
)

// DrainedByHook is true in a container whose SIGTERM comes only after lastcall's preStop hook has drained the pod. The
// injector sets it; a program that drains itself (the Go library) does not repeat the drain then.
const DrainedByHook = "LASTCALL_DRAINED_BY_HOOK"

// What a preStop hook of lastcall leaves of the grace period.
const (
	// DefaultLeave is left to the app after its SIGTERM: of 30 s, 25 s for its clients and 5 s for itself, as in Istio's
	// ambient mode. At most a quarter of the grace period is taken.
	DefaultLeave = 5 * time.Second

	// LeastAfter is how long the app's own hook may take after the wait, however long the wait was.
	LeastAfter = time.Second

	// EnvoyEnd is how long Envoy may take to exit at the end of a sidecar's hook.
	EnvoyEnd = time.Second
)

// DefaultRestartWait is how long a client waits for an app that restarts, in the data plane and in the kernel's rules.
const DefaultRestartWait = 10 * time.Second

// What the variables accept, for error messages: "must be …".
const (
	GracePeriodFormat = "whole seconds without a unit, 1 to 2147483647, such as 30"
	DurationFormat    = "a duration of 0s or more with its unit, such as 5s or 1m30s"
)

// ParseGracePeriod parses Kubernetes' terminationGracePeriodSeconds. 0 is not valid: it asks for an immediate SIGKILL.
func ParseGracePeriod(text string) (_ time.Duration, ok bool) {
	seconds, err := strconv.ParseInt(text, 10, 64)
	return time.Duration(seconds) * time.Second, err == nil && seconds >= 1 && seconds <= math.MaxInt32
}

// ParseDuration parses a Go duration of 0s or more.
func ParseDuration(text string) (_ time.Duration, ok bool) {
	d, err := time.ParseDuration(text)
	return d, err == nil && d >= 0
}

// Nearest returns the name closest to a misspelt one, if it was surely meant: equal except for case, or at most one
// edit per four letters and three in all away. Of several it returns the first by the alphabet.
func Nearest(name string, among []string) (string, bool) {
	if len(name) < 3 || len(name) > 100 {
		return "", false
	}
	best, limit := "", min(3, len(name)/4)
	folded := strings.ToLower(name)
	for _, candidate := range among {
		if max(len(name)-len(candidate), len(candidate)-len(name)) > limit {
			continue
		}
		d := distance(folded, strings.ToLower(candidate))
		if d == 0 {
			return candidate, true
		}
		if d < limit || d == limit && (best == "" || candidate < best) {
			best, limit = candidate, d
		}
	}
	return best, best != ""
}

// distance is the number of bytes to insert, delete, replace or swap with their neighbour to get from a to b.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			replace := last[j-1]
			if a[i-1] != b[j-1] {
				replace++
			}
			row[j] = min(replace, last[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
