//go:build e2e

package gateways

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/lab/e2e/nodetest"
)

// gateway is a Deployment of Envoys.
type gateway struct {
	*namespace
	form       string // for the log: how it ends
	deployment string
	labels     string // of its pods
	port       int    // where they serve HTTP
}

// ready returns the pods that serve and are not being deleted.
func (g *gateway) ready(ctx context.Context) (out []corev1.Pod, err error) {
	all, err := client.CoreV1().Pods(g.Name).List(ctx, metav1.ListOptions{LabelSelector: g.labels})
	if err != nil {
		return nil, err
	}
	for _, p := range all.Items {
		if p.DeletionTimestamp == nil && nodetest.IsReady(&p) {
			out = append(out, p)
		}
	}
	return out, nil
}

// scale sets the number of pods, and waits until they all serve.
func (g *gateway) scale(t *testing.T, replicas int) []corev1.Pod {
	t.Helper()
	g.Kubectl("scale", "deployment", g.deployment, "--replicas", strconv.Itoa(replicas))
	g.Kubectl("rollout", "status", "deployment", g.deployment, "--timeout", patience.String())
	var pods []corev1.Pod
	g.Until("scaled "+g.deployment, func() (err error) {
		pods, err = g.ready(t.Context())
		if err == nil && len(pods) != replicas {
			err = fmt.Errorf("%d of %d pods are ready", len(pods), replicas)
		}
		return err
	})
	for _, p := range pods {
		g.Until("served at "+p.Name, func() error { return get(g.address(&p), "/get") })
	}
	return pods
}

func (g *gateway) address(p *corev1.Pod) string {
	return net.JoinHostPort(p.Status.PodIP, strconv.Itoa(g.port))
}

// get sends one request on a connection of its own.
func get(address, path string) error {
	c := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := c.Get("http://" + address + path)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}
