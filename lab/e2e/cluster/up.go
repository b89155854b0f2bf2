package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
)

// upTime is how long the start may take once everything is built.
const upTime = 2 * time.Minute

// up starts the node. When it fails, nothing is left.
func (l layout) up(ctx context.Context) (err error) {
	switch len(l.running(daemons...)) {
	case 0:
	case len(daemons):
		say("it is up: %s", l.kubeconfig())
		return nil
	default:
		return errors.New("a part of it has ended: cluster down first")
	}
	if err := errors.Join(checkPrograms(), checkMachine(ctx)); err != nil {
		return err
	}
	binary, err := l.buildKubernetes(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, upTime)
	defer cancel()
	defer func() {
		if err != nil {
			err = errors.Join(err, l.down(context.WithoutCancel(ctx)))
		}
	}()
	if err := l.prepare(); err != nil {
		return err
	}
	for _, step := range []func(context.Context, string) error{l.startStore, l.startRuntime, l.startControl, l.startNode} {
		if err := step(ctx, binary); err != nil {
			return err
		}
	}
	say("up after %.1f s: export KUBECONFIG=%s", time.Since(began).Seconds(), l.kubeconfig())
	return nil
}

// checkMachine refuses a machine that is a node already: two kube-proxies undo each other's rules, and so would down.
func checkMachine(ctx context.Context) error {
	rules, err := exec.CommandContext(ctx, "iptables-save").Output()
	if err == nil && strings.Contains(string(rules), "KUBE-") {
		return errors.New("there are Kubernetes' packet filter rules on this machine: " +
			"it is a node already, or one was not taken down (cluster down)")
	}
	return nil
}

// prepare makes the folder, the credentials and the bridge.
func (l layout) prepare() error {
	for _, folder := range []string{"run", "volume-plugins", "logs/pods"} {
		if err := os.MkdirAll(l.path(folder), 0o755); err != nil {
			return err
		}
	}
	forward, err := os.ReadFile(ipForward)
	if err != nil {
		return err
	}
	if err := l.write("ip_forward", string(forward)); err != nil { // the bridge plugin sets it
		return err
	}
	token, err := l.makeCredentials()
	if err != nil {
		return err
	}
	if err := l.writeFiles(token); err != nil {
		return err
	}
	link, err := makeBridge()
	if err != nil {
		return err
	}
	// Until kube-proxy has a Service's rules, its packets would leave the machine by the default route, and another server
	// could answer. On the bridge no address answers.
	_, reachable, err := net.ParseCIDR(services)
	if err != nil {
		return err
	}
	return netlink.RouteReplace(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: reachable, Scope: netlink.SCOPE_LINK})
}

// makeBridge makes the bridge of the pods, with the node's address. Its MAC address is set to the one that it has: the
// kernel would otherwise give it the lowest of its ports'. When that pod left, packets of other pods would go to an
// address that nothing has, until they resolve it again, and what a pod sends before its own end would be lost.
func makeBridge() (netlink.Link, error) {
	attributes := netlink.LinkAttrs{Name: bridge}
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attributes}); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("make the bridge %s: %w", bridge, err)
	}
	link, err := netlink.LinkByName(bridge)
	if err != nil {
		return nil, fmt.Errorf("find the bridge %s: %w", bridge, err)
	}
	if err := netlink.LinkSetHardwareAddr(link, link.Attrs().HardwareAddr); err != nil {
		return nil, fmt.Errorf("keep the MAC address of the bridge %s: %w", bridge, err)
	}
	address := &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(nodeIP), Mask: net.CIDRMask(24, 32)}}
	if err := netlink.AddrReplace(link, address); err != nil {
		return nil, fmt.Errorf("give the bridge %s the address %s: %w", bridge, nodeIP, err)
	}
	return link, netlink.LinkSetUp(link)
}

func (l layout) startStore(ctx context.Context, _ string) error {
	client, peer := "http://"+local(portEtcd), "http://"+local(portEtcdPeer)
	d, err := l.start("etcd", "etcd", "--data-dir", l.path("etcd"), "--unsafe-no-fsync", "--log-level", "warn",
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer)
	if err != nil {
		return err
	}
	return l.await(ctx, d, func(ctx context.Context) error { return call(ctx, "curl", "--fail", client+"/health") })
}

func (l layout) startRuntime(ctx context.Context, _ string) error {
	d, err := l.start("containerd", "containerd", "--config", l.config())
	if err != nil {
		return err
	}
	return l.await(ctx, d, func(ctx context.Context) error { return l.ctr(ctx, "version") })
}

func (l layout) startControl(ctx context.Context, binary string) error {
	d, err := l.start("kube-apiserver", binary, "kube-apiserver",
		"--etcd-servers", "http://"+local(portEtcd),
		"--bind-address", nodeIP, "--advertise-address", nodeIP, fmt.Sprint("--secure-port=", portAPI),
		"--tls-cert-file", l.path("pki", "apiserver.crt"), "--tls-private-key-file", l.path("pki", "apiserver.key"),
		"--token-auth-file", l.path("pki", "tokens.csv"), "--authorization-mode", "RBAC",
		"--service-account-issuer", "https://kubernetes.default",
		"--service-account-signing-key-file", l.path("pki", "sa.key"),
		"--service-account-key-file", l.path("pki", "sa.key"), // its public part
		"--service-cluster-ip-range", services, "--allow-privileged",
		// Webhooks are called at their pods' addresses.
		"--enable-aggregator-routing",
		"--kubelet-preferred-address-types", "InternalIP",
		"--max-requests-inflight", "2000", "--max-mutating-requests-inflight", "1000")
	if err != nil {
		return err
	}
	err = l.await(ctx, d, func(ctx context.Context) error { return l.kubectl(ctx, "get", "--raw", "/readyz") })
	if err != nil {
		return err
	}
	for name, flags := range map[string][]string{
		"kube-controller-manager": {
			fmt.Sprint("--secure-port=", portController), "--service-account-private-key-file", l.path("pki", "sa.key"),
			"--root-ca-file", l.path("pki", "ca.crt"), "--kube-api-qps", "500", "--kube-api-burst", "1000",
		},
		"kube-scheduler": {fmt.Sprint("--secure-port=", portScheduler)},
	} {
		args := append([]string{name, "--kubeconfig", l.kubeconfig(), "--leader-elect=false",
			"--bind-address", "127.0.0.1"}, flags...)
		if _, err := l.start(name, binary, args...); err != nil {
			return err
		}
	}
	return nil
}

func (l layout) startNode(ctx context.Context, binary string) error {
	if err := l.importPause(ctx); err != nil {
		return err
	}
	_, err := l.start("kube-proxy", binary, "kube-proxy", "--kubeconfig", l.kubeconfig(), "--hostname-override", nodeName,
		// Pods on one bridge answer each other past the node: only a source of the node's brings the answer back to it.
		"--proxy-mode", "iptables", "--masquerade-all", "--cluster-cidr", podRange,
		"--conntrack-max-per-core", "0",
		"--conntrack-tcp-timeout-established", "0s", "--conntrack-tcp-timeout-close-wait", "0s",
		"--iptables-min-sync-period", "100ms", "--iptables-localhost-nodeports=false",
		"--healthz-bind-address", local(portProxyOK), "--metrics-bind-address", local(portProxyStats))
	if err != nil {
		return err
	}
	d, err := l.start("kubelet", binary, "kubelet", "--kubeconfig", l.kubeconfig(), "--config", l.path("kubelet.yaml"),
		"--root-dir", l.path("kubelet"), "--cert-dir", l.path("kubelet", "pki"),
		"--hostname-override", nodeName, "--node-ip", nodeIP)
	if err != nil {
		return err
	}
	return l.await(ctx, d, func(ctx context.Context) error {
		if err := l.kubectl(ctx, "wait", "--for=condition=Ready", "node/"+nodeName, "--timeout=5s"); err != nil {
			return err
		}
		// Pods can be made once the namespace has its account.
		return l.kubectl(ctx, "get", "serviceaccount", "default")
	})
}

// kubectl asks the API server.
func (l layout) kubectl(ctx context.Context, args ...string) error {
	return call(ctx, "kubectl", append([]string{"--kubeconfig", l.kubeconfig(), "--request-timeout=20s"}, args...)...)
}

// ctr runs containerd's own client.
func (l layout) ctr(ctx context.Context, args ...string) error {
	return call(ctx, "ctr", append([]string{"--address", l.containerd(), "--namespace", "k8s.io"}, args...)...)
}

// call runs a program to its end. The error has its output.
func call(ctx context.Context, program string, args ...string) error {
	if out, err := exec.CommandContext(ctx, program, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, out)
	}
	return nil
}
