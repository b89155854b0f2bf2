package check

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
)

// nativeSince is the first version whose native sidecars are on by default. No API server is older than its kubelets.
var nativeSince = version.MustParseGeneric("1.29")

// oldestKernel has the features that internal/sidecar/capture needs: NAT in nf_tables for the families ip and ip6.
// sock_diag, which lastcall wait --ports and --proxy envoy read, is older.
var oldestKernel = version.MustParseGeneric("4.18")

// nodes checks the nodes. It returns false if the API server does not respond.
func (c *checker) nodes() bool {
	c.group("Nodes")
	list, _ := look(c, "the API server lists the nodes", func(ctx context.Context) (*corev1.NodeList, error) {
		return c.Core.Nodes().List(ctx, metav1.ListOptions{})
	})
	if list == nil {
		return c.result.Status() != Failed // a user who may not list nodes may see the rest
	}
	nodes := list.Items
	var windows, old, kubelets []string
	for _, n := range nodes {
		info := n.Status.NodeInfo
		if info.OperatingSystem != "linux" {
			windows = append(windows, n.Name)
			continue
		}
		if kernel, err := version.ParseGeneric(info.KernelVersion); err != nil || kernel.LessThan(oldestKernel) {
			old = append(old, n.Name+" ("+info.KernelVersion+")")
		}
		if kubelet, err := version.ParseGeneric(info.KubeletVersion); err == nil && kubelet.LessThan(nativeSince) {
			kubelets = append(kubelets, n.Name+" ("+info.KubeletVersion+")")
		}
	}
	linux := len(nodes) - len(windows)
	if linux == 0 {
		c.add(Check{Name: "there are Linux nodes", Status: Failed,
			Detail: fmt.Sprintf("none of %d nodes", len(nodes)), Hint: "lastcall runs on Linux nodes only"})
		return true
	}
	c.ok("there are Linux nodes", "%d", linux)
	c.list("all nodes run Linux", Warning, windows, "pods on these nodes get no sidecar: do not label their namespaces")
	c.list("kernels can capture traffic ("+oldestKernel.String()+" or later)", Failed, old,
		"upgrade these nodes, or use lastcall.dev/proxy: sockets, which captures nothing")
	c.list("kubelets have native sidecars ("+nativeSince.String()+" or later)", Failed, kubelets,
		"upgrade these nodes, or inject classic sidecars: Helm value sidecar.native=false")
	return true
}

// list adds a check that passes if names is empty, and otherwise lists them.
func (c *checker) list(name string, status Status, names []string, hint string) {
	if len(names) == 0 {
		if status == Failed {
			c.ok(name, "")
		}
		return
	}
	c.add(Check{Name: name, Status: status, Detail: "not: " + some(names), Hint: hint, Page: "install.md"})
}

// some lists the first names.
func some(names []string) string {
	const most = 5
	slices.Sort(names)
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}
