package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
)

// istioUser is the user of Istio's images. Its packets are not redirected.
const istioUser = "1337:1337"

// istio makes Istio's two images from what lab/peers/istio/build has built in a folder, Envoy from PyPI and iptables of
// this machine.
func istio(folder string) error {
	envoy, err := peers.Find("envoy")
	if err != nil {
		return err
	}
	const discovery = "/usr/local/bin/pilot-discovery"
	pilot := image("local/pilot", func(t *tree) error {
		return errors.Join(t.add(filepath.Join(folder, "pilot-discovery"), discovery), t.addTemporary())
	}, []string{discovery}, "-user", istioUser)
	return errors.Join(pilot, image("local/proxyv2", func(t *tree) error {
		return errors.Join(
			t.add(filepath.Join(folder, "pilot-agent"), "/usr/local/bin/pilot-agent"),
			t.add(filepath.Join(folder, "envoy_bootstrap.json"), "/var/lib/istio/envoy/envoy_bootstrap_tmpl.json"),
			t.add(envoy, "/usr/local/bin/envoy"), t.addLibraries(envoy),
			t.addPacketFilter(), t.addTemporary(),
		)
	}, []string{"/usr/local/bin/pilot-agent"}, "-user", istioUser, "-env", "PATH=/usr/local/bin:/usr/sbin"))
}

// addPacketFilter copies this machine's iptables on nf_tables, with which istio-init redirects a pod's connections: one
// program under the names of all its commands, and its extensions.
func (t *tree) addPacketFilter() error {
	const program = "xtables-nft-multi"
	path, err := exec.LookPath("/usr/sbin/" + program)
	if err != nil {
		return fmt.Errorf("look for Debian's package iptables: %w", err)
	}
	if err := errors.Join(t.add(path, path), t.addLibraries(path)); err != nil {
		return err
	}
	for _, family := range []string{"iptables", "ip6tables"} {
		for _, command := range []string{"", "-save", "-restore", "-nft", "-nft-save", "-nft-restore"} {
			if err := os.Symlink(program, filepath.Join(t.root, "usr/sbin", family+command)); err != nil {
				return err
			}
		}
	}
	extensions, err := filepath.Glob("/usr/lib/*/xtables")
	if err != nil || len(extensions) != 1 {
		return fmt.Errorf("iptables' extensions, /usr/lib/*/xtables: %d folders (%w)", len(extensions), err)
	}
	// Those of arptables and ebtables are not needed.
	return t.addFolder(extensions[0], func(path string) bool {
		name := filepath.Base(path)
		return strings.HasPrefix(name, "libarpt_") || strings.HasPrefix(name, "libebt_")
	})
}
