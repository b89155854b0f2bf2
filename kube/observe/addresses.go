package observe

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ambientProbes are where the kubelet's probes come from in Istio's ambient mesh (istio.io, "Ambient and health
// probes").
var ambientProbes = []netip.Addr{netip.MustParseAddr("169.254.7.127"), netip.MustParseAddr("fd16:9254:7127:1337:ffff:ffff:ffff:ffff")}

// nodeProcess is the folder of a process in the node's network namespace: the kubelet, from which the probes come, or
// the first one.
func nodeProcess(proc string) string {
	names, _ := filepath.Glob(filepath.Join(proc, "[0-9]*", "cmdline"))
	for _, name := range names {
		text, _ := os.ReadFile(name)
		command := strings.SplitN(string(text), "\x00", 3) // "kubelet", or "hyperkube kubelet"
		if slices.ContainsFunc(command[:min(len(command), 2)], func(word string) bool { return filepath.Base(word) == "kubelet" }) {
			return filepath.Dir(name)
		}
	}
	return filepath.Join(proc, "1")
}

// addresses returns whether an address is one of the node's own, from which the kubelet's probes come. It reads the
// network namespace of a process. If it cannot, every address may be: no arrival is then a client's for certain.
func addresses(process string) func(netip.Addr) bool {
	own := map[netip.Addr]bool{}
	for _, a := range ambientProbes {
		own[a] = true
	}
	net := filepath.Join(process, "net")
	trie, err := os.ReadFile(filepath.Join(net, "fib_trie"))
	if err != nil {
		return func(netip.Addr) bool { return true }
	}
	var last netip.Addr
	for line := range bytes.Lines(trie) { // "|-- 10.244.0.1", then "/32 host LOCAL"
		fields := bytes.Fields(line)
		switch {
		case len(fields) == 2 && string(fields[0]) == "|--":
			last, _ = netip.ParseAddr(string(fields[1]))
		case len(fields) == 3 && string(fields[0]) == "/32" && string(fields[2]) == "LOCAL":
			own[last] = true
		}
	}
	six, _ := os.ReadFile(filepath.Join(net, "if_inet6")) // a node may be without IPv6
	for line := range bytes.Lines(six) {
		address, _, _ := bytes.Cut(line, []byte(" "))
		b, _ := hex.DecodeString(string(address))
		if a, ok := netip.AddrFromSlice(b); ok && !a.IsLinkLocalUnicast() { // each pod's link has one of those
			own[a] = true
		}
	}
	return func(a netip.Addr) bool { return own[a] }
}
