package cgroup

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"
)

func TestMemory(t *testing.T) {
	for name, tt := range map[string]struct {
		groups string
		files  map[string]string
		want   int64
	}{
		"version 2":                       {"0::/\n", map[string]string{"memory.max": "67108864\n"}, 64 << 20},
		"version 2, none":                 {"0::/\n", map[string]string{"memory.max": "max\n"}, 0},
		"the group around it is lower":    {"0::/a/b\n", map[string]string{"a/b/memory.max": "max\n", "a/memory.max": "1048576\n", "memory.max": "2097152\n"}, 1 << 20},
		"version 1":                       {"5:cpu:/\n4:memory:/a\n0::/\n", map[string]string{"memory/a/memory.limit_in_bytes": "67108864\n"}, 64 << 20},
		"version 1, none":                 {"4:memory:/a\n", map[string]string{"memory/a/memory.limit_in_bytes": "9223372036854771712\n"}, 0},
		"version 1, the machine's path":   {"4:memory:/kubepods/pod1/x\n", map[string]string{"memory/memory.limit_in_bytes": "1048576\n"}, 1 << 20},
		"version 1, several of a kind":    {"4:cpu,memory:/\n", map[string]string{"memory/memory.limit_in_bytes": "1048576\n"}, 1 << 20},
		"no controller, or no such files": {"nonsense\n0::/a\n", nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for file, text := range tt.files {
				if err := os.MkdirAll(filepath.Join(root, filepath.Dir(file)), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(root, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if got := memory(root, tt.groups); got != tt.want {
				t.Errorf("%d, want %d", got, tt.want)
			}
		})
	}
}

// GOMEMLIMIT holds where there is no lower limit.
func TestMemoryOfTheRuntime(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(1 << 20))
	if got := Memory(); got != 1<<20 {
		t.Errorf("%d", got)
	}
}
