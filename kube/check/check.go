// Package check looks a cluster over: whether lastcall can be installed, whether its webhook works, and what about the
// nodes and the injected pods cannot work. It changes nothing; the webhook is tried with a server-side dry run.
//
// Every look-up has a deadline. What the user may not see is a warning and not an error.
package check

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/lastcall-dev/lastcall/internal/printable"
	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
	"github.com/lastcall-dev/lastcall/kube/workload"
	"github.com/lastcall-dev/lastcall/rehearsal/console"
)

// Status is the outcome of one check.
type Status string

// The outcomes.
const (
	OK      Status = "ok"
	Warning Status = "warning" // works, or could not be checked
	Failed  Status = "error"
)

// Check is one thing that was looked at.
type Check struct {
	Name   string `json:"name"` // the condition that is checked
	Status Status `json:"status"`
	Detail string `json:"detail,omitempty"`
	Hint   string `json:"hint,omitempty"` // the remedy
	Page   string `json:"page,omitempty"` // of the documentation
}

// Group is a heading and its checks.
type Group struct {
	Name   string  `json:"name"`
	Checks []Check `json:"checks"`
}

// Result is the outcome of all checks.
type Result struct {
	Groups []Group `json:"groups"`
}

// Count returns how many checks have a status.
func (r *Result) Count(s Status) (n int) {
	for _, g := range r.Groups {
		for _, c := range g.Checks {
			if c.Status == s {
				n++
			}
		}
	}
	return n
}

// Options of the checks.
type Options struct {
	Namespace string        // of the webhook
	Name      string        // of the webhook's Deployment
	Pods      string        // namespace whose injected pods are looked at; empty for all
	Version   string        // of this program, compared with that of the images; empty for none
	Pre       bool          // before an installation
	Timeout   time.Duration // of each look-up
}

// maxPods is how many pods are looked at.
const maxPods = 5000

// checker is one run.
type checker struct {
	workload.Clients
	Options
	ctx    context.Context
	result Result
}

// Run makes all checks, or only the first when it fails: the API server does not respond.
func Run(ctx context.Context, clients workload.Clients, o Options) *Result {
	c := &checker{Clients: clients, Options: o, ctx: ctx}
	if responds := c.nodes(); responds && !o.Pre {
		c.webhook()
		c.pods()
	}
	return &c.result
}

func (c *checker) group(name string) { c.result.Groups = append(c.result.Groups, Group{Name: name}) }

func (c *checker) add(one Check) {
	one.Detail = terminal.Printable(strings.ReplaceAll(one.Detail, "\n", " ")) // it has text from the cluster
	g := &c.result.Groups[len(c.result.Groups)-1]
	g.Checks = append(g.Checks, one)
}

func (c *checker) ok(name, format string, args ...any) {
	c.add(Check{Name: name, Status: OK, Detail: fmt.Sprintf(format, args...)})
}

// look runs one look-up with a deadline; found is nil if there is no such object. When it fails, it adds a check with
// that name, and isKnown is false: a warning if the user may not do this, otherwise an error.
func look[T any](c *checker, name string, f func(context.Context) (*T, error)) (found *T, isKnown bool) {
	ctx, cancel := context.WithTimeout(c.ctx, c.Timeout)
	defer cancel()
	found, err := f(ctx)
	switch {
	case err == nil:
		return found, true
	case apierrors.IsNotFound(err):
		return nil, true
	case apierrors.IsForbidden(err):
		c.add(Check{Name: name, Status: Warning, Detail: "not checked: " + err.Error(),
			Hint: "run this as a user who may do so"})
	case errors.Is(err, context.DeadlineExceeded):
		c.add(Check{Name: name, Status: Failed, Detail: fmt.Sprintf("no response within %v", c.Timeout),
			Hint: "is the API server overloaded?"})
	default:
		c.add(Check{Name: name, Status: Failed, Detail: err.Error()})
	}
	return nil, false
}

// documentation is where the pages of Check.Page are.
const documentation = "https://github.com/lastcall-dev/lastcall/blob/main/docs/"

// mark is a status as a word of four letters.
func mark(s console.Style, status Status) string {
	return map[Status]string{Failed: s.Bad("FAIL"), Warning: s.Bold("WARN"), OK: s.Good("ok  ")}[status]
}

// WriteText prints the result for people.
func (r *Result) WriteText(w io.Writer, s console.Style) error {
	var b strings.Builder
	for i, g := range r.Groups {
		if len(g.Checks) == 0 {
			continue
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%s\n%s\n", g.Name, strings.Repeat("─", len(g.Name)))
		for _, c := range g.Checks {
			b.WriteString(mark(s, c.Status) + " " + c.Name)
			if c.Status == OK && c.Detail != "" {
				b.WriteString(": " + c.Detail)
			}
			b.WriteByte('\n')
			if c.Status != OK && c.Detail != "" {
				fmt.Fprintf(&b, "     %s\n", c.Detail)
			}
			if c.Hint != "" {
				fmt.Fprintf(&b, "     hint: %s\n", c.Hint)
			}
			if c.Page != "" && (c.Status != OK || c.Detail != "") {
				fmt.Fprintf(&b, "     see %s%s\n", documentation, c.Page)
			}
		}
	}
	fmt.Fprintf(&b, "\n%s: %d ok, %s, %s\n", mark(s, r.Status()), r.Count(OK),
		terminal.Count(r.Count(Warning), "warning"), terminal.Count(r.Count(Failed), "error"))
	_, err := io.WriteString(w, b.String())
	return err
}

// Status is that of the worst check.
func (r *Result) Status() Status {
	switch {
	case r.Count(Failed) > 0:
		return Failed
	case r.Count(Warning) > 0:
		return Warning
	}
	return OK
}

// WriteJSON prints the result for programs: {"status", "groups": [{"name", "checks": [...]}]}.
func (r *Result) WriteJSON(w io.Writer) error {
	encoder := json.NewEncoder(printable.JSONWriter(w))
	encoder.SetIndent("", "  ")
	return encoder.Encode(struct {
		Status Status  `json:"status"`
		Groups []Group `json:"groups"`
	}{r.Status(), r.Groups})
}

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
