package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// programs are the commands that a node needs in addition to Kubernetes' own, by their Debian packages.
var programs = []struct{ command, pkg string }{
	{"containerd", "containerd"},
	{"ctr", "containerd"},
	{"runc", "runc"},
	{"etcd", "etcd-server"},
	{"iptables", "iptables"},
	{"kubectl", "kubernetes-client (1.29 or later)"},
	{"/usr/lib/cni/bridge", "containernetworking-plugins"},
}

// checkPrograms says everything that is missing at once.
func checkPrograms() error {
	var missing []string
	seen := map[string]bool{}
	for _, p := range programs {
		if _, err := exec.LookPath(p.command); err != nil && !seen[p.pkg] {
			seen[p.pkg] = true
			missing = append(missing, p.pkg)
		}
	}
	if missing == nil {
		return nil
	}
	return fmt.Errorf("programs are missing; on Debian: apt-get install --no-install-recommends %s",
		strings.Join(missing, " "))
}

// The release in lab/e2e/kubernetes/go.mod.
const (
	release = "1.34.4"
	major   = "1"
	minor   = "34"
)

// buildKubernetes returns the path of Kubernetes' programs in one file, built once and kept in the cache folder.
func buildKubernetes(ctx context.Context) (string, error) {
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	source := filepath.Join("lab", "e2e", "kubernetes")
	hash := sha256.New()
	for _, name := range []string{"main.go", "go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(source, name))
		if errors.Is(err, os.ErrNotExist) {
			return "", fmt.Errorf("%s is not here: start this in the project's folder: %w", source, err)
		} else if err != nil {
			return "", err
		}
		hash.Write(text)
	}
	hash.Write([]byte(runtime.Version() + release))
	target := filepath.Join(cache, "kubernetes", fmt.Sprintf("kubernetes-%x", hash.Sum(nil)[:8]))
	if _, err := os.Stat(target); err == nil {
		return target, nil
	}
	say("building Kubernetes (once: some minutes)")
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return "", err
	}
	// kubectl, Helm and clients see the version. A plain build does not know it.
	stamp := "-s -w"
	for _, of := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		stamp += fmt.Sprintf(" -X %[1]s.gitVersion=v%[2]s -X %[1]s.gitMajor=%[3]s -X %[1]s.gitMinor=%[4]s",
			of, release, major, minor)
	}
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags="+stamp, "-o", target+".new", ".")
	build.Dir = source
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off") // its own versions, not the project's
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build Kubernetes in %s: %w\n%s", source, err, out)
	}
	old, _ := filepath.Glob(filepath.Join(filepath.Dir(target), "kubernetes-*")) // 125 MB each
	for _, file := range old {
		if file != target+".new" {
			_ = os.Remove(file)
		}
	}
	return target, os.Rename(target+".new", target)
}

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, "cluster: "+format+"\n", args...) }
