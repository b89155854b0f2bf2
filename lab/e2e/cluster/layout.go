package main

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
)

// The node's own network: a bridge that holds the API server, the kubelet and all pods. Nothing of it leaves the
// machine.
const (
	bridge     = "lastcall-e2e"
	nodeIP     = "10.244.0.1"
	podRange   = "10.244.0.0/24"
	services   = "10.96.0.0/16"
	apiService = "10.96.0.1" // the Service kubernetes
	nodeName   = "node"
)

// Ports, on the bridge or on loopback. They are not the usual ones, so that a cluster that is there already is not met.
const (
	portAPI        = 16443
	portEtcd       = 16379
	portEtcdPeer   = 16380
	portController = 16257
	portScheduler  = 16259
	portKubelet    = 16250
	portKubeletOK  = 16248
	portProxyOK    = 16256
	portProxyStats = 16249
)

// layout is where the cluster's files lie.
type layout struct{ dir string }

// newLayout has the cluster's folder in lastcall's cache folder.
func newLayout() (layout, error) {
	cache, err := os.UserCacheDir()
	return layout{filepath.Join(cache, "lastcall", "cluster")}, err
}

func (l layout) path(elements ...string) string {
	return filepath.Join(append([]string{l.dir}, elements...)...)
}

func (l layout) kubeconfig() string { return l.path("kubeconfig") }
func (l layout) containerd() string { return l.path("run", "containerd.sock") }
func (l layout) config() string     { return l.path("containerd.toml") }

func local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
