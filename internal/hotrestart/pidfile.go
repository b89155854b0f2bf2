package hotrestart

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// The file names the process to talk to: the one that serves, and during a hot
// restart the old one until it has drained. Systemd goes by it (PIDFile=): at the
// old one's end it looks whom the file names, and by then that is its own child. A
// successor that is named earlier (MAINPID=) is another's child and stays "alien"
// for systemd, which with KillMode=mixed does not wait for an alien to end: the
// SIGKILL comes with the SIGTERM.

func (h *Handover) writePID(pid int) error {
	if h.pidFile == "" {
		return nil
	}
	fresh := h.pidFile + "." + strconv.Itoa(os.Getpid()) // readers see the old number or the new one
	err := os.WriteFile(fresh, []byte(strconv.Itoa(pid)+"\n"), 0o644)
	if err == nil {
		err = os.Rename(fresh, h.pidFile)
	}
	if err != nil {
		_ = os.Remove(fresh)
		return fmt.Errorf("write the process number to %s: %w", filepath.Base(h.pidFile), err)
	}
	return nil
}

// Bequeath names the successor in the pid file. It is a process's last act.
func (h *Handover) Bequeath(successor int) error { return h.writePID(successor) }

// ClaimPIDFile names this process, when the predecessor has gone without doing so.
func (h *Handover) ClaimPIDFile() error { return h.writePID(os.Getpid()) }

// RemovePIDFile removes the file if it names this process, whose last act it is.
func (h *Handover) RemovePIDFile() error {
	if h.pidFile == "" {
		return nil
	}
	if pid, err := ReadPIDFile(h.pidFile); err != nil || pid != os.Getpid() {
		return nil // never written, or a successor's
	}
	return os.Remove(h.pidFile)
}

// ReadPIDFile is the process number in a file that lastcall run --pid-file has written.
func ReadPIDFile(file string) (int, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, fmt.Errorf("read the process number: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid <= 1 {
		return 0, fmt.Errorf("%s holds %q: want one process number, as lastcall run --pid-file writes it", file, b)
	}
	return pid, nil
}

// IsAlive says whether a process has not ended yet. One that nobody has waited for
// (a zombie) has.
func IsAlive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	// The state follows the name, which is in brackets and may hold anything.
	end := bytes.LastIndexByte(stat, ')')
	return end < 0 || !bytes.HasPrefix(stat[end+1:], []byte(" Z")) && !bytes.HasPrefix(stat[end+1:], []byte(" X"))
}
