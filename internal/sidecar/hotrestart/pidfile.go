package hotrestart

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/lastcall-dev/lastcall/internal/sidecar/process"
)

// The file names the process that serves, and during a hot restart the old one until that has drained. systemd reads it
// (PIDFile=) when the old process exits: by then the named process is systemd's own child. A successor that is
// announced earlier (MAINPID=) is another process's child, "alien" for systemd, which with KillMode=mixed does not wait
// for an alien's exit: SIGKILL follows SIGTERM at once.

func (h *Handover) writePID(pid int) error {
	if h.pidFile == "" {
		return nil
	}
	fresh := h.pidFile + "." + strconv.Itoa(os.Getpid()) // readers see the old number or the new one, never half of it
	err := os.WriteFile(fresh, []byte(strconv.Itoa(pid)+"\n"), 0o644)
	if err == nil {
		err = os.Rename(fresh, h.pidFile)
	}
	if err != nil {
		_ = os.Remove(fresh)
		return fmt.Errorf("write the pid file %s: %w", filepath.Base(h.pidFile), err)
	}
	return nil
}

// RemovePIDFile removes the file if it names this process. It is a process's last act.
func (h *Handover) RemovePIDFile() error {
	if h.pidFile == "" {
		return nil
	}
	if pid, err := ReadPIDFile(h.pidFile); err != nil || pid != os.Getpid() {
		return nil // never written, or a successor's
	}
	return os.Remove(h.pidFile)
}

// ReadPIDFile returns the process number in a file of lastcall run --pid-file.
func ReadPIDFile(file string) (int, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, fmt.Errorf("read the pid file: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid <= 1 {
		return 0, fmt.Errorf("%s holds %q: must be one process number, as lastcall run --pid-file writes it", file, b)
	}
	return pid, nil
}

// IsAlive reports whether a process is running. A zombie is not.
func IsAlive(pid int) bool {
	fields := process.Stat(pid)
	return len(fields) > 0 && fields[0] != "Z" && fields[0] != "X"
}
