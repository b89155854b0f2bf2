package main

import (
	"encoding/base64"
	"fmt"
	"net"
	"os"
	"strconv"
)

// pauseImage is the image that holds a pod's namespaces. Its name must be whole for containerd to find it.
const pauseImage = "docker.io/local/pause:1"

// writeFiles writes the programs' configuration.
func (l layout) writeFiles(token string) error {
	authority, err := os.ReadFile(l.path("pki", "ca.crt"))
	if err != nil {
		return err
	}
	for name, text := range map[string]string{
		"kubeconfig": fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: e2e, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: admin, user: {token: %q}}]
contexts: [{name: e2e, context: {cluster: e2e, user: admin}}]
current-context: e2e
`, "https://"+net.JoinHostPort(nodeIP, strconv.Itoa(portAPI)), base64.StdEncoding.EncodeToString(authority), token),

		// restrict_oom_score_adj: a machine that is itself a sandbox may lack CAP_SYS_RESOURCE.
		"containerd.toml": fmt.Sprintf(`version = 2
root = %q
state = %q
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.devmapper"]
[grpc]
  address = %q
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = %q
`, l.path("containerd"), l.path("run", "containerd"), l.containerd(), pauseImage, l.path("cni")),

		"cni/10-pods.conflist": fmt.Sprintf(`{
  "cniVersion": "0.4.0", "name": %q,
  "plugins": [
    {"type": "bridge", "bridge": %q, "isGateway": true,
     "ipam": {"type": "host-local", "dataDir": %q, "ranges": [[{"subnet": %q, "gateway": %q}]],
              "routes": [{"dst": "0.0.0.0/0"}]}},
    {"type": "loopback"}
  ]
}
`, bridge, bridge, l.path("addresses"), podRange, nodeIP),

		// Cgroups of version 1 and no QoS tree: the node is a guest on a machine that has its own. Without that tree the
		// kubelet's resize of pods in place has panicked (doPodResizeAction, nil pointer).
		"kubelet.yaml": fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix://%s
address: %s
port: %d
healthzPort: %d
healthzBindAddress: 127.0.0.1
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
cgroupsPerQOS: false
failCgroupV1: false
enforceNodeAllocatable: []
evictionHard: {}
failSwapOn: false
imageGCHighThresholdPercent: 100
featureGates: {InPlacePodVerticalScaling: false}
localStorageCapacityIsolation: false
makeIPTablesUtilChains: false
podLogsDir: %s
resolvConf: ""
kubeAPIQPS: 200
kubeAPIBurst: 400
eventRecordQPS: 0
registryPullQPS: 0
volumePluginDir: %s
`, l.containerd(), nodeIP, portKubelet, portKubeletOK, l.path("logs", "pods"), l.path("volume-plugins")),
	} {
		if err := l.write(name, text); err != nil {
			return fmt.Errorf("write the node's configuration: %w", err)
		}
	}
	return nil
}
