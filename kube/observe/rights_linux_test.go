package observe

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRights: each missing right is named.
func TestRights(t *testing.T) {
	const both = 1<<unix.CAP_SYS_ADMIN | 1<<unix.CAP_SYS_PTRACE
	for _, tt := range []struct {
		effective uint64
		pid       int
		missing   []string
	}{
		{both, 700, nil},
		{1 << unix.CAP_SYS_ADMIN, 700, []string{"SYS_PTRACE"}},
		{1 << unix.CAP_SYS_PTRACE, 700, []string{"SYS_ADMIN"}},
		{both, 1, []string{"hostPID"}},
		{0, 1, []string{"hostPID", "SYS_PTRACE", "SYS_ADMIN"}},
	} {
		err := checkRights(tt.effective, tt.pid)
		if (err != nil) != (len(tt.missing) > 0) {
			t.Errorf("%x as process %d: %v", tt.effective, tt.pid, err)
			continue
		}
		for _, name := range tt.missing {
			if !strings.Contains(err.Error(), name) {
				t.Errorf("%q does not name %s", err, name)
			}
		}
	}
}
