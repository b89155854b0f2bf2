package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	all, err := l.daemons()
	if err != nil {
		return err
	}
	began := time.Now()
	if slices.ContainsFunc(all, func(d daemon) bool { return d.Name == "kubelet" && d.runs() }) {
		if err := l.deletePods(ctx, all); err != nil {
			say("%v", err)
		}
	}
	for _, d := range slices.Backward(all) {
		if d.Name == "containerd" {
			l.endContainers()
		}
		if d.runs() {
			d.end()
		}
		if d.Name == "containerd" { // a later one was started by hand
			for _, other := range running(d.Name, l.config()) {
				say("ending %s (pid %d), which cluster up did not start", other.Name, other.Pid)
				other.end()
			}
		}
	}
	err = errors.Join(l.unmount(), cleanFilters(ctx), l.cleanLinks(), cleanCgroups(), l.cleanSettings())
	if err != nil {
		return fmt.Errorf("clean up after the node: %w", err)
	}
	if err := os.RemoveAll(l.dir); err != nil {
		return err
	}
	say("down after %.1f s", time.Since(began).Seconds())
	return nil
}

// deletePods has the kubelet end them, so that it undoes its own changes for them.
func (l layout) deletePods(ctx context.Context, all []daemon) error {
	ctx, cancel := context.WithTimeout(ctx, emptyTime)
	defer cancel()
	client, err := l.client()
	if err != nil {
		return err
	}
	// Without controllers none is made again.
	for _, d := range all {
		if (d.Name == "kube-controller-manager" || d.Name == "kube-scheduler") && d.runs() {
			d.end()
		}
	}
	return l.await(ctx, "the end of all pods", nil, func(ctx context.Context) error {
		pods, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
		if err != nil || len(pods.Items) == 0 {
			return err
		}
		for i := range pods.Items {
			p := &pods.Items[i]
			if p.DeletionTimestamp == nil || p.DeletionGracePeriodSeconds != nil && *p.DeletionGracePeriodSeconds > 1 {
				_ = client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(1))})
			}
		}
		return fmt.Errorf("%d pods are there", len(pods.Items))
	})
}

// endContainers ends the shims that are left of pods that the kubelet could not end: they outlive containerd by design.
func (l layout) endContainers() {
	for _, d := range running("containerd-shim", l.containerd()) {
		for _, child := range children(d.Pid) {
			_ = syscall.Kill(child, syscall.SIGKILL)
		}
		d.end()
	}
}

// running are the processes of programs whose names begin so, with this argument.
func running(program, argument string) (all []daemon) {
	processes, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range processes {
		line, _ := os.ReadFile(file) // it may have ended
		arguments := strings.Split(string(line), "\x00")
		isOurs := slices.ContainsFunc(arguments, func(a string) bool {
			return a == argument || strings.HasSuffix(a, "="+argument)
		})
		if name := filepath.Base(arguments[0]); isOurs && strings.HasPrefix(name, program) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			all = append(all, daemon{Name: name, Pid: pid, Started: startTime(pid)})
		}
	}
	return all
}

func children(pid int) (out []int) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for field := range strings.FieldsSeq(string(text)) {
			if child, err := strconv.Atoi(field); err == nil {
				out = append(out, child)
			}
		}
	}
	return out
}

// unmount takes away every mount below the cluster's folder, the innermost first.
func (l layout) unmount() error {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return err
	}
	var points []string
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasPrefix(fields[1], l.dir+"/") {
			points = append(points, fields[1])
		}
	}
	var errs []error
	for _, point := range slices.Backward(points) {
		if err := syscall.Unmount(point, syscall.MNT_DETACH); err != nil {
			errs = append(errs, fmt.Errorf("unmount %s: %w", point, err))
		}
	}
	return errors.Join(errs...)
}

// cleanFilters removes the chains that kube-proxy leaves behind. There were none before (checkMachine).
func cleanFilters(ctx context.Context) error {
	for _, tables := range []string{"iptables", "ip6tables"} {
		text, err := exec.CommandContext(ctx, tables+"-save").Output()
		if err != nil {
			continue // no such family here
		}
		var kept strings.Builder
		for line := range strings.Lines(string(text)) {
			if !strings.Contains(line, "KUBE-") {
				kept.WriteString(line)
			}
		}
		if kept.Len() == len(text) {
			continue
		}
		restore := exec.CommandContext(ctx, tables+"-restore")
		restore.Stdin = strings.NewReader(kept.String())
		if out, err := restore.CombinedOutput(); err != nil {
			return fmt.Errorf("%s-restore: %w: %s", tables, err, out)
		}
	}
	return nil
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
func cleanCgroups() error {
	roots, _ := filepath.Glob("/sys/fs/cgroup/*/k8s.io")
	unified, _ := filepath.Glob("/sys/fs/cgroup/k8s.io")
	var errs []error
	for _, root := range append(roots, unified...) {
		var folders []string
		_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				folders = append(folders, path)
			}
			return nil
		})
		for _, folder := range slices.Backward(folders) {
			if err := os.Remove(folder); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
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
