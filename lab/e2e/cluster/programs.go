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
	{"runc", "runc"},
	{"etcd", "etcd-server"},
	{"curl", "curl"},
	{"iptables", "iptables"},
	{"kubectl", "kubernetes-client (1.29 or later)"},
	{"/usr/lib/cni/bridge", "containernetworking-plugins"},
}

// checkPrograms says everything that is missing at once.
func checkPrograms() error {
	var missing []string
	for _, p := range programs {
		if _, err := exec.LookPath(p.command); err != nil {
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
func (l layout) buildKubernetes(ctx context.Context) (string, error) {
	source := filepath.Join("lab", "e2e", "kubernetes")
	hash := sha256.New()
	for _, name := range []string{"main.go", "go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			return "", fmt.Errorf("start this in the project's folder: %w", err)
		}
		hash.Write(text)
	}
	hash.Write([]byte(runtime.Version() + release))
	target := filepath.Join(l.dir, "../kubernetes", fmt.Sprintf("kubernetes-%x", hash.Sum(nil)[:8]))
	if _, err := os.Stat(target); err == nil {
		return target, nil
	}
	say("building Kubernetes (once: some minutes)")
	folder := filepath.Dir(target)
	if err := errors.Join(os.RemoveAll(folder), os.MkdirAll(folder, 0o755)); err != nil { // others have 125 MB each
		return "", err
	}
	// kubectl, Helm and clients see the version. A plain build does not know it.
	stamp := "-s -w"
	for _, of := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		stamp += fmt.Sprintf(" -X %[1]s.gitVersion=v%[2]s -X %[1]s.gitMajor=%[3]s -X %[1]s.gitMinor=%[4]s",
			of, release, major, minor)
	}
	// Its own versions, not the project's.
	if err := call(ctx, "env", "-C", source, "CGO_ENABLED=0", "GOWORK=off",
		"go", "build", "-trimpath", "-ldflags="+stamp, "-o", target+".new", "."); err != nil {
		return "", err
	}
	return target, os.Rename(target+".new", target)
}

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, "cluster: "+format+"\n", args...) }
