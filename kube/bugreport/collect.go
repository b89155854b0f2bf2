package bugreport

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/lastcall-dev/lastcall/kube/check"
)

// Limits of a report.
const (
	mostFile   = 2 << 20 // bytes of one file
	mostPods   = 20      // injected pods
	mostEvents = 500
	logLines   = 5000
)

// Options of a report.
type Options struct {
	Check   check.Options
	Pods    []string // names of pods, NAME or NAMESPACE/NAME; empty for the first of the injected ones
	Program string   // this program's version
	// Exec runs a command in a container and returns its output; nil to leave out what needs it.
	Exec func(ctx context.Context, namespace, pod, container string, command []string) ([]byte, error)
	// Progress is called before each step.
	Progress func(step string)
}

// collector is one report.
type collector struct {
	check.Clients
	Options
	ctx      context.Context
	zip      *zip.Writer
	problems []string
	files    int
}

// Write collects a report into w. The error is one of w; problems are the parts that could not be collected.
func Write(ctx context.Context, w io.Writer, clients check.Clients, o Options) (files int, problems []string, err error) {
	c := &collector{Clients: clients, Options: o, ctx: ctx, zip: zip.NewWriter(w)}
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"versions", c.versions}, {"check", c.check}, {"webhook", c.webhook}, {"controller", c.controller}, {"pods", c.pods}, {"errors", c.finish},
	} {
		if o.Progress != nil {
			o.Progress(step.name)
		}
		if err := errors.Join(step.do(), ctx.Err()); err != nil {
			return c.files, c.problems, fmt.Errorf("collect %s: %w", step.name, err)
		}
	}
	return c.files, c.problems, c.zip.Close()
}

// add writes one file, cut to mostFile.
func (c *collector) add(name string, content []byte) error {
	if len(content) > mostFile {
		content = append(content[:mostFile:mostFile], "\n[cut here: the file is too long]\n"...)
	}
	f, err := c.zip.CreateHeader(&zip.FileHeader{Name: "lastcall-bug-report/" + name, Method: zip.Deflate, Modified: c.Check.Now})
	if err == nil {
		_, err = f.Write(content)
	}
	c.files++
	return err
}

// get runs one look-up with a deadline, and writes what it returns. A failure is listed in the report.
func (c *collector) get(name string, f func(ctx context.Context) ([]byte, error)) error {
	ctx, cancel := context.WithTimeout(c.ctx, c.Check.Timeout)
	defer cancel()
	content, err := f(ctx)
	if err != nil {
		c.problems = append(c.problems, name+": "+err.Error())
		if len(content) == 0 {
			return nil
		}
	}
	return c.add(name, content)
}

const readme = `A bug report of lastcall.

It contains, of the cluster: the versions of Kubernetes and of the nodes, lastcall's webhook configurations, the
controller's Deployment, pods, logs and Events; of injected pods: their manifests, Events of their namespace, the
sidecar's log, metrics, live connections (clients' addresses and requests' paths) and report of the last termination.

No Secret has been read. Values of environment variables, arguments and annotations that look secret are REDACTED; this
cannot be perfect. LOOK AT THE FILES BEFORE YOU SHARE THEM: logs, paths and addresses may be confidential.

errors.txt names what could not be collected.
`

func (c *collector) versions() error {
	if err := c.add("README.txt", []byte(readme)); err != nil {
		return err
	}
	return c.get("versions.txt", func(ctx context.Context) ([]byte, error) {
		var b bytes.Buffer
		fmt.Fprintf(&b, "lastcallctl: %s\ncollected: %s\n", c.Program, c.Check.Now.UTC().Format(time.RFC3339))
		info, err := c.Server.ServerVersion()
		if err != nil {
			return b.Bytes(), err
		}
		fmt.Fprintf(&b, "kubernetes: %s %s\n", info.GitVersion, info.Platform)
		nodes, err := c.Core.Nodes().List(ctx, metav1.ListOptions{Limit: 1000})
		if err != nil {
			return b.Bytes(), err
		}
		for _, n := range nodes.Items {
			i := n.Status.NodeInfo
			fmt.Fprintf(&b, "node %s: %s/%s kernel %s kubelet %s %s %s\n", n.Name, i.OperatingSystem, i.Architecture, i.KernelVersion, i.KubeletVersion, i.ContainerRuntimeVersion, i.OSImage)
		}
		return b.Bytes(), nil
	})
}

func (c *collector) check() error {
	result := check.Run(c.ctx, c.Clients, c.Check)
	var text, machine bytes.Buffer
	if err := errors.Join(result.WriteText(&text, check.Style{}), result.WriteJSON(&machine)); err != nil {
		return err
	}
	return errors.Join(c.add("check.txt", text.Bytes()), c.add("check.json", machine.Bytes()))
}

func (c *collector) webhook() error {
	return errors.Join(
		c.get("webhook/mutating.yaml", func(ctx context.Context) ([]byte, error) {
			one, err := c.Admission.MutatingWebhookConfigurations().Get(ctx, c.Check.Name, metav1.GetOptions{})
			if err != nil {
				return nil, err
			}
			meta(&one.ObjectMeta)
			return yaml.Marshal(one)
		}),
		c.get("webhook/validating.yaml", func(ctx context.Context) ([]byte, error) {
			one, err := c.Admission.ValidatingWebhookConfigurations().Get(ctx, c.Check.Name, metav1.GetOptions{})
			if err != nil {
				return nil, err
			}
			meta(&one.ObjectMeta)
			return yaml.Marshal(one)
		}),
		c.get("webhook/others.txt", func(ctx context.Context) ([]byte, error) {
			list, err := c.Admission.MutatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, err
			}
			var b bytes.Buffer
			for _, one := range list.Items {
				fmt.Fprintln(&b, one.Name)
			}
			return b.Bytes(), nil
		}),
	)
}

func (c *collector) controller() error {
	ns := c.Check.Namespace
	err := errors.Join(
		c.get("controller/deployment.yaml", func(ctx context.Context) ([]byte, error) {
			d, err := c.Apps.Deployments(ns).Get(ctx, c.Check.Name, metav1.GetOptions{})
			if err != nil {
				return nil, err
			}
			meta(&d.ObjectMeta)
			meta(&d.Spec.Template.ObjectMeta)
			spec(&d.Spec.Template.Spec)
			return yaml.Marshal(d)
		}),
		c.events("controller/events.txt", ns),
	)
	var pods []corev1.Pod
	err = errors.Join(err, c.get("controller/pods.txt", func(ctx context.Context) ([]byte, error) {
		list, err := c.Core.Pods(ns).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=lastcall", Limit: mostPods})
		if err != nil {
			return nil, err
		}
		pods = list.Items
		var b bytes.Buffer
		for _, p := range pods {
			fmt.Fprintf(&b, "%s %s on %s\n", p.Name, p.Status.Phase, p.Spec.NodeName)
		}
		return b.Bytes(), nil
	}))
	for i := range pods {
		err = errors.Join(err, c.pod("controller/"+pods[i].Name, &pods[i]))
	}
	return err
}

func (c *collector) events(name, namespace string) error {
	return c.get(name, func(ctx context.Context) ([]byte, error) {
		list, err := c.Core.Events(namespace).List(ctx, metav1.ListOptions{Limit: mostEvents})
		if err != nil {
			return nil, err
		}
		var b bytes.Buffer
		for _, e := range list.Items {
			at := e.LastTimestamp.Time
			if at.IsZero() {
				at = e.EventTime.Time
			}
			fmt.Fprintf(&b, "%s %s %s %s/%s: %s\n", at.UTC().Format(time.RFC3339), e.Type, e.Reason, e.InvolvedObject.Kind, e.InvolvedObject.Name, strings.ReplaceAll(e.Message, "\n", " "))
		}
		return b.Bytes(), nil
	})
}

// finish writes what could not be collected.
func (c *collector) finish() error {
	if len(c.problems) == 0 {
		return nil
	}
	return c.add("errors.txt", []byte(strings.Join(c.problems, "\n")+"\n"))
}
