// Package cgroup reads the limits of the container that a process runs in.
package cgroup

import (
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
)

// Memory is how many bytes this process may use: the lowest limit of its control groups, or GOMEMLIMIT if that is
// lower; 0 if there is none.
func Memory() int64 {
	groups, _ := os.ReadFile("/proc/self/cgroup")
	return lower(memory("/sys/fs/cgroup", string(groups)), debug.SetMemoryLimit(-1))
}

// unlimited is more memory than machines have. Version 1 reports the largest number of pages as no limit.
const unlimited = math.MaxInt64 / 16

// lower is the lower of two limits, of which 0 and beyond unlimited are none.
func lower(a, b int64) int64 {
	switch {
	case b <= 0 || b >= unlimited:
		return a
	case a == 0:
		return b
	}
	return min(a, b)
}

// memory is the lowest limit of the groups in a /proc/PID/cgroup and of those around them. In a container without a
// namespace of its own for control groups, the paths are the machine's, while its own group is mounted as the root.
func memory(root, groups string) (limit int64) {
	for line := range strings.Lines(groups) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) < 3 {
			continue
		}
		for controller := range strings.SplitSeq(parts[1], ",") {
			top, file := root, "memory.max" // version 2
			switch controller {
			case "":
			case "memory":
				top, file = filepath.Join(root, controller), "memory.limit_in_bytes"
			default:
				continue
			}
			for path := filepath.Clean("/" + parts[2]); ; path = filepath.Dir(path) {
				limit = lower(limit, read(filepath.Join(top, path, file)))
				if path == "/" {
					break
				}
			}
		}
	}
	return limit
}

// read is the number in a file; 0 if there is none, as for "max".
func read(file string) int64 {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n
}
