package bugreport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/kube/check"
)

// sidecar is the name of the injected container.
const sidecar = "lastcall"

// pods collects the named pods, or the injected ones.
func (c *collector) pods() error {
	var pods []corev1.Pod
	err := c.get("pods/list.txt", func(ctx context.Context) ([]byte, error) {
		var b bytes.Buffer
		if len(c.Options.Pods) == 0 {
			all, isAll, err := check.Injected(ctx, c.Clients, c.Check.Pods)
			if err != nil {
				return nil, err
			}
			for _, p := range all {
				fmt.Fprintf(&b, "%s/%s %s\n", p.Namespace, p.Name, p.Status.Phase)
			}
			if !isAll {
				b.WriteString("and more\n")
			}
			pods = all[:min(len(all), mostPods)]
			return b.Bytes(), nil
		}
		var errs error
		for _, name := range c.Options.Pods[:min(len(c.Options.Pods), mostPods)] {
			namespace, pod, ok := strings.Cut(name, "/")
			if !ok {
				namespace, pod = c.Check.Pods, name
				if namespace == "" {
					namespace = metav1.NamespaceDefault
				}
			}
			p, err := c.Core.Pods(namespace).Get(ctx, pod, metav1.GetOptions{})
			if err != nil {
				errs = errors.Join(errs, err)
				continue
			}
			fmt.Fprintf(&b, "%s/%s %s\n", p.Namespace, p.Name, p.Status.Phase)
			pods = append(pods, *p)
		}
		return b.Bytes(), errs
	})
	var namespaces []string
	for i := range pods {
		p := &pods[i]
		if !slices.Contains(namespaces, p.Namespace) {
			namespaces = append(namespaces, p.Namespace)
			err = errors.Join(err, c.events("pods/"+p.Namespace+"/events.txt", p.Namespace))
		}
		folder := "pods/" + p.Namespace + "/" + p.Name
		err = errors.Join(err, c.pod(folder, p), c.sidecarState(folder, p))
	}
	return err
}

// pod writes a pod's manifest and status, the logs of lastcall's containers, and reports of terminations.
func (c *collector) pod(folder string, p *corev1.Pod) error {
	err := c.get(folder+"/pod.yaml", func(context.Context) ([]byte, error) { return yaml.Marshal(Pod(p)) })
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		for _, end := range []*corev1.ContainerStateTerminated{s.State.Terminated, s.LastTerminationState.Terminated} {
			if end == nil {
				continue
			}
			if report, ok := drain.ParseMessage(end.Message); ok {
				err = errors.Join(err, c.add(folder+"/report-"+s.Name+".txt", []byte(report.Summary()+"\n\n"+end.Message+"\n")))
			}
		}
		isOurs := strings.HasPrefix(s.Name, sidecar) || strings.HasPrefix(folder, "controller/")
		if !isOurs {
			continue
		}
		err = errors.Join(err, c.log(folder+"/"+s.Name+".log", p, s.Name, false))
		if s.RestartCount > 0 {
			err = errors.Join(err, c.log(folder+"/"+s.Name+".previous.log", p, s.Name, true))
		}
	}
	return err
}

func (c *collector) log(name string, p *corev1.Pod, container string, previous bool) error {
	return c.get(name, func(ctx context.Context) ([]byte, error) {
		lines, most := int64(logLines), int64(mostFile)
		stream, err := c.Core.Pods(p.Namespace).GetLogs(p.Name, &corev1.PodLogOptions{Container: container, Previous: previous, TailLines: &lines, LimitBytes: &most, Timestamps: true}).Stream(ctx)
		if err != nil {
			return nil, err
		}
		defer func() { _ = stream.Close() }()
		return io.ReadAll(io.LimitReader(stream, mostFile))
	})
}

// sidecarState asks a running sidecar itself, from within its container.
func (c *collector) sidecarState(folder string, p *corev1.Pod) error {
	if c.Exec == nil || !runs(p) {
		return nil
	}
	var err error
	for file, command := range map[string][]string{
		"connections.json": {"/lastcall", "connections", "-o", "json"},
		"config.json":      {"/lastcall", "config", "-o", "json"},
		"metrics.txt":      {"/lastcall", "request", "GET", "metrics"},
		"ready.txt":        {"/lastcall", "request", "GET", "healthz/ready"},
	} {
		err = errors.Join(err, c.get(folder+"/"+file, func(ctx context.Context) ([]byte, error) {
			return c.Exec(ctx, p.Namespace, p.Name, sidecar, command)
		}))
	}
	return err
}

// runs reports whether a pod has a sidecar that runs.
func runs(p *corev1.Pod) bool {
	return slices.ContainsFunc(slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses), func(s corev1.ContainerStatus) bool {
		return s.Name == sidecar && s.State.Running != nil
	})
}
