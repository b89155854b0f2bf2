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

// nativeSince is the first version whose native sidecars are on by default.
var nativeSince = version.MustParseGeneric("1.29")

// api reports whether the API server responds.
func (c *checker) api() bool {
	c.group("Kubernetes API")
	const reached = "the API server responds"
	found, _ := look(c, reached, func(ctx context.Context) (*version.Version, error) {
		info, err := c.Server.ServerVersionWithContext(ctx)
		if err != nil {
			return nil, err
		}
		return version.ParseGeneric(info.GitVersion)
	})
	if found == nil {
		return false
	}
	c.ok(reached, "version %s", found)
	if found.LessThan(nativeSince) {
		c.add(Check{Name: "the version has native sidecars", Status: Failed, Detail: fmt.Sprintf("%s is older than %s", found, nativeSince),
			Hint: "upgrade the cluster, or inject classic sidecars: Helm value sidecar.native=false", Page: "install.md"})
	} else {
		c.ok("the version has native sidecars", "%s or later", nativeSince)
	}
	return true
}

// oldestKernel has the features that internal/sidecar/capture needs: NAT in nf_tables for the families ip and ip6.
// sock_diag, which lastcall wait --ports and --proxy envoy read, is older.
var oldestKernel = version.MustParseGeneric("4.18")

func (c *checker) nodes() {
	c.group("Nodes")
	list, _ := look(c, "nodes can run the sidecar", func(ctx context.Context) (*corev1.NodeList, error) {
		return c.Core.Nodes().List(ctx, metav1.ListOptions{})
	})
	if list == nil {
		return
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
		c.add(Check{Name: "there are Linux nodes", Status: Failed, Detail: fmt.Sprintf("none of %d nodes", len(nodes)), Hint: "lastcall runs on Linux nodes only"})
		return
	}
	c.ok("there are Linux nodes", "%d", linux)
	c.list("all nodes run Linux", Warning, windows, "pods on these nodes get no sidecar: do not label their namespaces")
	c.list("kernels can capture traffic ("+oldestKernel.String()+" or later)", Failed, old, "upgrade these nodes, or use lastcall.dev/proxy: sockets, which captures nothing")
	c.list("kubelets have native sidecars ("+nativeSince.String()+" or later)", Failed, kubelets, "upgrade these nodes, or inject classic sidecars: Helm value sidecar.native=false")
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
