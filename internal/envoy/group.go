package envoy

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// signalGroup reaches an Envoy behind a script too: what it starts is in its
// process group. It says whether anybody was there.
func (p *Plane) signalGroup(s syscall.Signal) bool { return syscall.Kill(-p.child.Pid(), s) == nil }

// groupLives says whether something of the group still runs, now that its leader
// has ended: without a script, nothing does.
func (p *Plane) groupLives() bool {
	if !p.signalGroup(0) {
		return false
	}
	// A dead process whose parent does not reap it still counts for kill(2).
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range stats {
		b, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		// pid (comm) state ppid pgrp …: comm may hold anything (proc(5)).
		fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
		if len(fields) > 2 && string(fields[2]) == strconv.Itoa(p.child.Pid()) && fields[0][0] != 'Z' {
			return true
		}
	}
	return false
}
