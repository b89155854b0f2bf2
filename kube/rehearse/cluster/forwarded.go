package cluster

import (
	"bytes"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// isLocal reports whether a URL names this machine.
func isLocal(u *url.URL) bool {
	at, err := netip.ParseAddr(u.Hostname())
	return u.Hostname() == "localhost" || err == nil && at.IsLoopback()
}

// isForwarded reports whether kubectl port-forward serves the URL's port. It is tied to one pod and ends with it, so that all
// later requests would be refused. Without /proc it reports false.
func isForwarded(u *url.URL) bool {
	if !isLocal(u) || u.Port() == "" {
		return false
	}
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return false
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(text, []byte("\x00port-forward\x00")) {
			continue
		}
		if slices.ContainsFunc(strings.Split(string(text), "\x00"), func(arg string) bool {
			own, _, _ := strings.Cut(arg, ":")
			return own == u.Port()
		}) {
			return true
		}
	}
	return false
}
