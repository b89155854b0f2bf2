package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/lastcall-dev/lastcall/internal/sidecar/process"
)

const (
	ipForward = "/proc/sys/net/ipv4/ip_forward"

	// emptyTime is how long the node's pods are given to go.
	emptyTime = 20 * time.Second
)

// down ends the node and removes its traces on the machine: mounts, cgroups, links, packet filter rules. It continues
// after an error, and ignores parts that are already gone.
func (l layout) down(ctx context.Context) error {
	if _, err := os.Stat(l.dir); errors.Is(err, os.ErrNotExist) {
		say("it is down")
		return nil
	}
	began := time.Now()
	if len(l.running("kubelet")) > 0 {
		// The kubelet undoes its own changes for the pods. Without controllers none is made again.
		l.end("kube-scheduler", "kube-controller-manager")
		if err := l.kubectl(ctx, "delete", "pods", "--all", "--all-namespaces", "--grace-period=1",
			"--timeout", emptyTime.String()); err != nil {
			say("%v", err)
		}
	}
	for _, name := range slices.Backward(daemons) {
		if name == "containerd" {
			l.endContainers()
		}
		l.end(name)
	}
	err := errors.Join(l.unmount(ctx), cleanFilters(ctx), l.cleanLinks(), cleanCgroups(ctx), l.cleanSettings())
	if err != nil {
		return fmt.Errorf("clean up after the node: %w", err)
	}
	if err := os.RemoveAll(l.dir); err != nil {
		return err
	}
	say("down after %.1f s", time.Since(began).Seconds())
	return nil
}

func (l layout) end(programs ...string) {
	for _, d := range l.running(programs...) {
		d.end()
	}
}

// endContainers ends the shims that are left of pods that the kubelet could not end: they outlive containerd by design.
func (l layout) endContainers() {
	const shim = "containerd-shim-runc-v2"
	for _, d := range l.running(shim) {
		for _, pid := range process.Family(d.Pid) {
			if pid != d.Pid {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
	l.end(shim)
}

// unmount takes away every mount below the cluster's folder, the innermost first.
func (l layout) unmount(ctx context.Context) error {
	return shell(ctx, `awk -v folder="$1/" 'index($2, folder) == 1 {print $2}' /proc/self/mounts | tac |
		xargs -r -d '\n' -n 1 umount --lazy`, l.dir)
}

// cleanFilters removes the chains that kube-proxy leaves behind. There were none before (checkMachine).
func cleanFilters(ctx context.Context) error {
	return shell(ctx, `for tables in iptables ip6tables; do
		rules=$($tables-save) || continue # no such family here
		case $rules in *KUBE-*) printf '%s\n' "$rules" | grep -v KUBE- | $tables-restore ;; esac || exit
	done`)
}

// shell runs a script.
func shell(ctx context.Context, script string, args ...string) error {
	return call(ctx, "sh", append([]string{"-c", script, "sh"}, args...)...)
}

func (l layout) cleanLinks() error {
	link, err := netlink.LinkByName(bridge)
	if err != nil {
		return nil // it is gone
	}
	all, err := netlink.LinkList()
	if err != nil {
		return err
	}
	for _, other := range all { // pods' ends that are still there
		if other.Attrs().MasterIndex == link.Attrs().Index {
			_ = netlink.LinkDel(other)
		}
	}
	if err := netlink.LinkDel(link); err != nil {
		return fmt.Errorf("delete the bridge %s: %w", bridge, err)
	}
	return nil
}

// cleanCgroups removes the containers' empty folders, which the runtime leaves.
func cleanCgroups(ctx context.Context) error {
	return shell(ctx, `for folder in /sys/fs/cgroup/k8s.io /sys/fs/cgroup/*/k8s.io; do
		[ ! -d $folder ] || find $folder -depth -type d -exec rmdir {} + || exit
	done`)
}

// cleanSettings restores the settings of the whole machine, and removes links and results at fixed paths.
func (l layout) cleanSettings() error {
	results, _ := filepath.Glob("/var/lib/cni/results/" + bridge + "-*")
	logs, _ := filepath.Glob("/var/log/containers/*.log")
	for _, file := range append(results, logs...) {
		target, err := os.Readlink(file)
		if err != nil || strings.HasPrefix(target, l.dir+"/") {
			_ = os.Remove(file)
		}
	}
	before, err := os.ReadFile(l.path("ip_forward"))
	if err != nil {
		return nil // it was not touched
	}
	return os.WriteFile(ipForward, before, 0o644)
}
