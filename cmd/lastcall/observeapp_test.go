package main

import (
	"context"
	"os/exec"
	"strings"
	"testing"
)

// A process that has exited cannot be observed; one that is watched has exited when it has, or when the watch ends.
func TestProcessThatIsGone(t *testing.T) {
	t.Parallel()
	c := exec.Command("sleep", "60")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	exited, err := awaitProcess(context.Background(), c.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Process.Kill()
	<-exited
	_ = c.Wait()
	if _, err := namespaceOf(c.Process.Pid); err == nil || !strings.Contains(err.Error(), "no such process") {
		t.Errorf("error %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	stopped, err := awaitProcess(ctx, 1)
	if err != nil {
		t.Skip(err)
	}
	cancel()
	<-stopped
}

func TestInGroup(t *testing.T) {
	t.Parallel()
	const id = "3f1c9a0b11d2"
	for cgroup, want := range map[string]bool{
		"0::/system.slice/docker-3f1c9a0b11d2aa.scope\n":                       true,
		"0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-3f1c9a0b11d2aa": true,
		"12:cpu:/kubepods/pod1/3f1c9a0b11d2aa\n":                               true,
		"0::/system.slice/web.service\n":                                       false,
		"0::/docker-aa3f1c9a0b11d2.scope\n":                                    false,
	} {
		if got := inGroup(cgroup, id); got != want {
			t.Errorf("%q: %v", cgroup, got)
		}
	}
	for _, bad := range []string{"", "abc", "web-1-container"} {
		if _, err := ofContainer(bad); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}
