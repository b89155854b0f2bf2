package envoy

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/process"
)

// signalGroup also reaches an Envoy behind a script: the script's children are in its process group. It reports whether
// a process was there.
func signalGroup(c *process.Child, s syscall.Signal) bool { return syscall.Kill(-c.Pid(), s) == nil }

// dying reports whether Envoy is exiting: the kernel closes the sockets of a process some time before its parent is
// notified, and connections that end this way were not complete.
func dying(c *process.Child) bool {
	fields := process.Stat(c.Pid())
	if len(fields) == 0 {
		_, err := os.Stat("/proc/self/stat")
		return err == nil // reaped; otherwise there is no /proc here
	}
	const exiting = 0x4 // PF_EXITING
	if len(fields) < 7 {
		return false
	}
	flags, _ := strconv.ParseUint(fields[6], 10, 64)
	return flags&exiting != 0
}

// groupLives reports whether a process of the group still runs after its leader has exited: only a script leaves one.
func groupLives(c *process.Child) bool {
	if !signalGroup(c, 0) {
		return false
	}
	// A zombie still counts for kill(2).
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range stats {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		fields := process.Stat(pid) // state, parent, group, …
		if len(fields) > 2 && fields[2] == strconv.Itoa(c.Pid()) && fields[0] != "Z" {
			return true
		}
	}
	return false
}

// mainThreadTime is the processor time of Envoy's main thread, which serves its admin API; false where Envoy is not
// ours, or /proc lacks it.
func mainThreadTime(c *process.Child) (time.Duration, bool) {
	if c == nil {
		return 0, false
	}
	b, err := os.ReadFile("/proc/" + strconv.Itoa(c.Pid()) + "/schedstat")
	if err != nil {
		return 0, false
	}
	first, _, _ := bytes.Cut(b, []byte(" "))
	ns, err := strconv.ParseInt(string(first), 10, 64)
	return time.Duration(ns), err == nil
}
