package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// upTime is how long the start may take once everything is built.
const upTime = 2 * time.Minute

// up starts the node. When it fails, nothing is left.
func (l layout) up(ctx context.Context) (err error) {
	all, err := l.daemons()
	if err != nil {
		return err
	}
	if slices.ContainsFunc(all, daemon.runs) {
		if slices.ContainsFunc(all, func(d daemon) bool { return !d.runs() }) {
			return errors.New("a part of it has ended: cluster down first")
		}
		say("it is up: %s", l.kubeconfig())
		return nil
	}
	if err := errors.Join(checkPrograms(), checkMachine(ctx)); err != nil {
		return err
	}
	binary, err := buildKubernetes(ctx)
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
	return l.await(ctx, "etcd", d, answers(client+"/health"))
}

func (l layout) startRuntime(ctx context.Context, _ string) error {
	d, err := l.start("containerd", "containerd", "--config", l.config())
	if err != nil {
		return err
	}
	return l.await(ctx, "containerd", d, func(ctx context.Context) error { return l.ctr(ctx, "version") })
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
	client, err := l.client()
	if err != nil {
		return err
	}
	err = l.await(ctx, "the API server", d, func(ctx context.Context) error {
		return client.RESTClient().Get().AbsPath("/readyz").Timeout(time.Second).Do(ctx).Error()
	})
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
		args := append([]string{binary, name, "--kubeconfig", l.kubeconfig(), "--leader-elect=false",
			"--bind-address", "127.0.0.1"}, flags...)
		if _, err := l.start(name, args...); err != nil {
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
	client, err := l.client()
	if err != nil {
		return err
	}
	return l.await(ctx, "the node", d, func(ctx context.Context) error {
		node, err := client.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
				// Pods can be made once the namespace has its account.
				_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
				return err
			}
		}
		return errors.New("not ready yet")
	})
}

func (l layout) client() (*kubernetes.Clientset, error) {
	config, err := clientcmd.BuildConfigFromFlags("", l.kubeconfig())
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

// ctr runs containerd's own client.
func (l layout) ctr(ctx context.Context, args ...string) error {
	args = append([]string{"--address", l.containerd(), "--namespace", "k8s.io"}, args...)
	if out, err := exec.CommandContext(ctx, "ctr", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ctr %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// answers is done when a URL answers with a success.
func answers(url string) func(context.Context) error {
	client := &http.Client{Timeout: time.Second}
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return errors.New(response.Status)
		}
		return nil
	}
}
