package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/capture"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/programtest"
)

func TestMain(m *testing.M) { programtest.Main(m, map[string]func(){"lastcall-cni": main}) }

// call calls the plugin as a container runtime does, and returns what it writes to standard output.
func call(t *testing.T, command, version, netns string, annotations map[string]string, more map[string]any) (map[string]any, error) {
	t.Helper()
	stdin := map[string]any{"cniVersion": version, "name": "pods", "type": "lastcall-cni", "capabilities": map[string]bool{"io.kubernetes.cri.pod-annotations": true}}
	if annotations != nil {
		stdin["runtimeConfig"] = map[string]any{"io.kubernetes.cri.pod-annotations": annotations}
	}
	maps.Copy(stdin, more)
	text, err := json.Marshal(stdin)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, programtest.Build(t))
	cmd.Stdin = bytes.NewReader(text)
	cmd.Env = append(os.Environ(), "CNI_COMMAND="+command, "CNI_CONTAINERID=c1", "CNI_NETNS="+netns, "CNI_IFNAME=eth0", "CNI_PATH=/opt/cni/bin",
		"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-1;K8S_POD_INFRA_CONTAINER_ID=c1")
	stdout, err := cmd.Output()
	var result map[string]any
	if len(stdout) > 0 {
		if err := json.Unmarshal(stdout, &result); err != nil {
			t.Fatalf("%s: %v: %q", command, err, stdout)
		}
	}
	if err != nil && result["code"] == nil {
		t.Fatalf("%s: %v without an error in JSON: %q", command, err, stdout)
	}
	return result, err
}

// previous is the result of the plugin that made the network.
func previous(version string) map[string]any {
	address := map[string]any{"address": "10.77.0.2/24", "gateway": "10.77.0.1", "interface": 0}
	if version < "1.0.0" {
		address["version"] = "4"
	}
	return map[string]any{"prevResult": map[string]any{
		"cniVersion": version, "interfaces": []any{map[string]any{"name": "eth0", "sandbox": "/run/netns/x"}}, "ips": []any{address}, "dns": map[string]any{},
	}}
}

func serve(t *testing.T, at *nettest.Namespace, port int, name string) {
	at.Answer(t, port, func(net.Conn) string { return name })
}

// Connections of a marked pod are captured as soon as the runtime has called the plugin, with the settings of the pod's
// annotations, and with every version of the protocol.
func TestCapturesMarkedPods(t *testing.T) {
	for _, version := range []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"} {
		t.Run(version, func(t *testing.T) {
			n := nettest.New(t)
			serve(t, n.Pod, 15006, "pipe inbound")
			serve(t, n.Pod, 15001, "pipe outbound")
			serve(t, n.Pod, 8080, "app")
			serve(t, n.Pod, 8081, "app")
			serve(t, n.Pod, 15999, "status")
			serve(t, n.Client, 80, "world")
			wants := func(step, inbound, outbound string) {
				t.Helper()
				for to, want := range map[string]string{
					n.Pod.TCP4(8080): inbound, n.Pod.TCP6(8080): inbound, n.Pod.TCP4(15999): "status",
					n.Pod.TCP4(9100): "connection refused", n.Pod.TCP4(8081): "app", // excluded
				} {
					if got := n.Client.Receive(t, netip.Addr{}, to); !strings.Contains(got, want) {
						t.Errorf("%s: %s answered %q, want %q", step, to, got, want)
					}
				}
				for _, to := range []string{n.Client.TCP4(80), n.Client.TCP6(80)} {
					if got := n.Pod.As(1000, 1000).Receive(t, netip.Addr{}, to); got != outbound {
						t.Errorf("%s: %s answered %q, want %q", step, to, got, outbound)
					}
				}
			}
			checks := func(step string, want bool) {
				t.Helper()
				if err := n.Pod.As(1337, 1337).Do(capture.Check); (err == nil) != want {
					t.Errorf("%s: the sidecar's check: %v", step, err)
				}
			}

			for what, annotations := range map[string]map[string]string{
				"no annotations": nil, "others": {"a": "b"}, "one that asks, and was not injected": {"lastcall.dev/capture": "cni"},
				"not marked, with a setting that is wrong": {"traffic.sidecar.istio.io/excludeInboundPorts": "x"},
			} {
				result, err := call(t, "ADD", version, n.Pod.Path(), annotations, previous(version))
				if err != nil {
					t.Fatalf("%s: %v: %v", what, err, result)
				}
				wants(what, "app", "world")
			}
			checks("not marked", false)

			marked := map[string]string{"lastcall.dev/cni": "15000,15999", "traffic.sidecar.istio.io/excludeInboundPorts": "8081",
				"traffic.sidecar.istio.io/includeOutboundIPRanges": "*"}
			for _, step := range []string{"first", "again"} {
				result, err := call(t, "ADD", version, n.Pod.Path(), marked, previous(version))
				if err != nil {
					t.Fatalf("%v: %v", err, result)
				}
				ips, _ := result["ips"].([]any)
				if result["cniVersion"] != version || len(ips) != 1 || ips[0].(map[string]any)["address"] != "10.77.0.2/24" {
					t.Errorf("the result of the plugin before is not passed on: %v", result)
				}
				wants(step, "pipe inbound", "pipe outbound")
				checks(step, true)
			}
			if version != "0.3.1" { // which has no CHECK
				if result, err := call(t, "CHECK", version, n.Pod.Path(), marked, previous(version)); err != nil {
					t.Errorf("check: %v: %v", err, result)
				}
				if err := n.Pod.Do(capture.Remove); err != nil {
					t.Fatal(err)
				}
				if result, err := call(t, "CHECK", version, n.Pod.Path(), marked, previous(version)); err == nil || !strings.Contains(fmt.Sprint(result["details"]), "delete the pod") {
					t.Errorf("check without rules: %v: %v", err, result)
				}
				if result, err := call(t, "CHECK", version, n.Pod.Path(), nil, previous(version)); err != nil {
					t.Errorf("check of another pod: %v: %v", err, result)
				}
			}
			if version == "1.1.0" {
				for _, command := range []string{"STATUS", "GC"} {
					if result, err := call(t, command, version, "", nil, map[string]any{"cni.dev/valid-attachments": []any{}}); err != nil {
						t.Errorf("%s: %v: %v", command, err, result)
					}
				}
			}
			// The namespace may be gone already.
			for _, netns := range []string{n.Pod.Path(), "/proc/self/no-such-namespace", ""} {
				if result, err := call(t, "DEL", version, netns, marked, nil); err != nil {
					t.Errorf("DEL with %q: %v: %v", netns, err, result)
				}
			}
		})
	}
}

// A marked pod that cannot be captured does not start; the error names the pod and what is wrong.
func TestRefuses(t *testing.T) {
	n := nettest.New(t)
	marked := map[string]string{"lastcall.dev/cni": "15000,15020"}
	machine := "/proc/1/ns/net"
	for _, c := range []struct {
		name, netns string
		annotations map[string]string
		more        map[string]any
		want        string
	}{
		{"not chained", n.Pod.Path(), marked, nil, "after another plugin"},
		{"a result of no version", n.Pod.Path(), marked, map[string]any{"prevResult": map[string]any{"cniVersion": "9"}}, "plugin before"},
		{"no namespace", "/proc/self/no-such-namespace", marked, previous("1.0.0"), "shop/web-1"},
		{"a file", "/etc/hostname", marked, previous("1.0.0"), "enter the pod's network namespace"},
		{"own ports", n.Pod.Path(), map[string]string{"lastcall.dev/cni": "15000,x"}, previous("1.0.0"), "annotation lastcall.dev/cni"},
		{"another setting", n.Pod.Path(), map[string]string{"lastcall.dev/cni": "15000", "traffic.sidecar.istio.io/excludeInboundPorts": "80000"}, previous("1.0.0"), "excludeInboundPorts"},
		{"the node's own namespace", machine, marked, previous("1.0.0"), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.netns == machine {
				if comm, err := os.ReadFile("/proc/2/comm"); err != nil || string(comm) != "kthreadd\n" {
					t.Log("these tests run in a container: there is no machine to refuse")
					return
				}
			}
			result, err := call(t, "ADD", "1.0.0", c.netns, c.annotations, c.more)
			if text := fmt.Sprint(result["msg"], " ", result["details"]); err == nil || !strings.Contains(text, c.want) {
				t.Errorf("%v: %v, want %q", err, result, c.want)
			}
		})
	}
	if err := n.Pod.As(1337, 1337).Do(capture.Check); err == nil {
		t.Error("there are rules")
	}
}
