package architecture

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

// layers lists the folders in the order in which a termination passes through them: each may import those that come
// after it, never one before it. A folder below a listed one (internal/sidecar/pipe/x) belongs to that one. ARCHITECTURE.md
// shows the list: go test ./internal/sidecar/architecture -update writes it.
var layers = []struct{ folders, what string }{
	{"kube/cmd cmd rehearsal/cmd", "flags and wiring"},
	{"rehearsal/command", "the commands of a rehearsal, which two programs mount"},
	{"internal/sidecar/cli", "shared by the command lines: errors, signals, version, log flags"},
	{"kube/rehearse", "what a rehearsal takes from a manifest"},
	{"kube/check", "looks a cluster over"},
	{"kube/plan", "a manifest's termination as a timeline, and the smallest timers that lose no requests"},
	{"rehearsal", "one machine as a cluster: the experiment, the rollout, your own service"},
	{"kube/webhook kube/events", "admission of pods; Kubernetes Events about how they ended"},
	{"kube/observe", "reports what the terminations of a node's pods lose"},
	{"kube/eventwriter", "creates Kubernetes Events, with retries and a bound"},
	{"kube/ephemeral", "observes a workload's terminations from ephemeral containers in its pods"},
	{"kube/workload", "a workload's rollouts: reads, awaits and triggers them"},
	{"kube/advice", "what terminations have lost, by workload, and what would help"},
	{"kube/lint", "timers of a manifest that contradict each other"},
	{"kube/termination", "how a pod ends, as data: containers, hooks, signals, what clients see and when"},
	{"kube/inject", "a sidecar for a pod, as a pure function"},
	{"kube/pod", "one reading of a pod: its proxy, hooks, reactions to signals, which containers serve"},
	{"kube/manifest", "files, folders and streams of Kubernetes objects, with the lines of their fields"},
	{"internal/sidecar/agent", "PID 1: configuration, data plane, drain, status server"},
	{"internal/sidecar/admin", "Envoy's admin API for our proxy"},
	{"internal/sidecar/mesh", "the preStop hook next to another's Envoy, such as Istio's"},
	{"internal/sidecar/observe", "what a termination loses, from the kernel's reports alone"},
	{"internal/sidecar/envoy internal/sidecar/pipe internal/sidecar/sockets", "data planes: a real Envoy, our proxy, the app's own sockets"},
	{"internal/sidecar/worker", "a data plane: a worker that its own signals report idle"},
	{"internal/sidecar/podend", "how a pod ends under given traffic, by the rules of the kubelet, Istio and lastcall"},
	{"internal/sidecar/hook", "runs a preStop hook over any data plane"},
	{".", "the library: package lastcall drains a Go program's own servers"},
	{"httpdrain grpcdrain", "data planes for Go programs: an http.Server; a grpc.Server"},
	{"internal/sidecar/process internal/sidecar/capture", "child processes and orphans; redirection of a pod's traffic"},
	{"internal/sidecar/tlsserver", "the TLS that a listener terminates, and why handshakes fail"},
	{"internal/sidecar/certificate", "TLS certificates that are replaced while they serve"},
	{"internal/sidecar/sockdiag", "the kernel's table of TCP sockets"},
	{"internal/sidecar/freeport", "TCP ports for servers that listen later"},
	{"internal/sidecar/meshconfig", "Istio's ProxyConfig, each value with its source"},
	{"internal/timers", "the variables that set a termination's timers"},
	{"internal/sidecar/probe", "asks the app as the kubelet's probes do"},
	{"internal/sidecar/tcp", "sockets with TLS and splice; loopback by either family of addresses"},
	{"internal/phase", "the phase of a termination, which hooks await"},
	{"internal/listen", "listeners that stop without resetting a client, and resume; on every system"},
	{"internal/sidecar/budget", "bounds the memory of requests that are not complete"},
	{"internal/sidecar/counters", "counters and histograms of a listener"},
	{"internal/wire", "parsers without sockets or goroutines"},
	{"internal/sidecar/statusserver", "limits of the small HTTP servers for status, admin API and metrics"},
	{"internal/sidecar/accesslog", "Envoy's access log lines, response flags and local replies"},
	{"internal/sidecar/signals", "the signals that stop and reload"},
	{"internal/sidecar/systemd", "notifies systemd that a service serves, is alive, or stops"},
	{"internal/sidecar/terminal", "a drain's progress for a person at a terminal"},
	{"internal/sidecar/istio", "the ports that Istio fixes for its sidecars"},
	{"internal/poll", "waits for what no event announces"},
	{"internal/spread", "spreads the ends of conversations whose clients reconnect"},
	{"internal/sidecar/logs", "log output that never blocks: bounded, counted, throttled"},
	{"drain", "the state machine: imports nothing of the project that has a state"},
	{"internal/printable", "keeps text of other authors from controlling a terminal"},
}

// downwards are the folders of layers, in order.
var downwards = func() (all []string) {
	for _, l := range layers {
		all = append(all, strings.Fields(l.folders)...)
	}
	return all
}()

var update = flag.Bool("update", false, "write the list into ARCHITECTURE.md")

// TestARCHITECTURE compares the list of folders in ARCHITECTURE.md, its first indented block, with layers.
func TestARCHITECTURE(t *testing.T) {
	const file = "../../../ARCHITECTURE.md"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, _ := strings.Cut(string(text), "\n\n    ")
	_, rest, found := strings.Cut(rest, "\n\n")
	if !found {
		t.Fatalf("%s has no indented block", file)
	}
	var list strings.Builder
	for _, l := range layers {
		fmt.Fprintf(&list, "    %-48s %s\n", strings.Join(strings.Fields(l.folders), ", "), l.what)
	}
	want := head + "\n\n" + list.String() + "\n" + rest
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if want != string(text) {
		t.Errorf("the list of folders in ARCHITECTURE.md is not that of layers: run go test ./internal/sidecar/architecture -update")
	}
}
