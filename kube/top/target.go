package top

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/lastcall-dev/lastcall/kube/carrier"
	"github.com/lastcall-dev/lastcall/kube/check"
	"github.com/lastcall-dev/lastcall/kube/inject"
)

// Target selects pods.
type Target struct {
	Namespace string // empty: all
	Name      string // of a pod, Deployment, StatefulSet or DaemonSet; empty: all injected pods
}

// find returns what lists the target's pods. A name is looked up in the order pod, Deployment, StatefulSet, DaemonSet.
func (t Target) find(ctx context.Context, c check.Clients) (metav1.ListOptions, error) {
	o := metav1.ListOptions{Limit: MostPods}
	if t.Name == "" {
		o.LabelSelector = inject.LabelInjected + "=" + inject.LabelInjectedValue
		return o, nil
	}
	_, err := c.Core.Pods(t.Namespace).Get(ctx, t.Name, metav1.GetOptions{})
	if err == nil {
		o.FieldSelector = fields.OneTermEqualSelector("metadata.name", t.Name).String()
		return o, nil
	}
	for _, get := range []func() (*metav1.LabelSelector, error){
		func() (*metav1.LabelSelector, error) {
			one, err := c.Apps.Deployments(t.Namespace).Get(ctx, t.Name, metav1.GetOptions{})
			return one.Spec.Selector, err
		},
		func() (*metav1.LabelSelector, error) {
			one, err := c.Apps.StatefulSets(t.Namespace).Get(ctx, t.Name, metav1.GetOptions{})
			return one.Spec.Selector, err
		},
		func() (*metav1.LabelSelector, error) {
			one, err := c.Apps.DaemonSets(t.Namespace).Get(ctx, t.Name, metav1.GetOptions{})
			return one.Spec.Selector, err
		},
	} {
		if !apierrors.IsNotFound(err) {
			break
		}
		var selector *metav1.LabelSelector
		if selector, err = get(); err == nil {
			o.LabelSelector = metav1.FormatLabelSelector(selector)
			return o, nil
		}
	}
	if apierrors.IsNotFound(err) {
		return o, fmt.Errorf("find %s/%s: no pod, Deployment, StatefulSet or DaemonSet has this name", t.Namespace, t.Name)
	}
	return o, fmt.Errorf("find %s/%s: %w", t.Namespace, t.Name, err)
}

// container is the name of the injected container.
const container = "lastcall"

// errNoAgent describes a pod without lastcall.
var errNoAgent = errors.New("no container lastcall in this pod")

// statusPort is the port of a pod's agent.
func statusPort(p *corev1.Pod) (int32, error) {
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for _, c := range list {
			if c.Name != container {
				continue
			}
			for _, port := range c.Ports {
				if port.Name == carrier.PortStatus {
					return port.ContainerPort, nil
				}
			}
			return defaultStatusPort, nil
		}
	}
	return 0, errNoAgent
}
