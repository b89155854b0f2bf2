package main

import (
	"os/exec"
	"slices"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/must"
)

// A program that was started by hand is found by its name and a file of the cluster, and ended.
func TestRunning(t *testing.T) {
	l := layout{t.TempDir()}
	for name, isOurs := range map[string]bool{"/usr/bin/containerd": true, "editor": false} {
		cmd := exec.Cmd{Path: "/bin/sh", Args: []string{name, "-c", "read line", "--config", l.config()}}
		if _, err := cmd.StdinPipe(); err != nil {
			t.Fatal(err)
		}
		must.Do(t, cmd.Start())
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		all := l.running("containerd")
		if found := slices.ContainsFunc(all, func(d daemon) bool { return d.Pid == cmd.Process.Pid && d.runs() }); found != isOurs {
			t.Errorf("%s: found %v", name, found)
		}
		for _, d := range all {
			d.end()
		}
		if !isOurs {
			_ = cmd.Process.Kill()
		}
		<-ended
	}
	if all := l.running("containerd"); len(all) > 0 {
		t.Errorf("%v run still", all)
	}
}
