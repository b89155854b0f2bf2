package webhook

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/kube/carrier"
	"github.com/lastcall-dev/lastcall/kube/inject"
)

// Limits of the cache of namespaces.
const (
	labelsLast    = 10 * time.Second // until a namespace is read again
	labelsKept    = time.Hour        // how long the previous state is used if it cannot be read
	labelsTimeout = time.Second      // how long a pod's creation waits for them
	maxNamespaces = 1000
)

type knownNamespace struct {
	inject.Namespace
	until time.Time
}

// Namespace is what injection reads of a namespace, cached for a short time; the previous state and an error if it
// cannot be read now. Pods that are created at the same time in one namespace share one look-up.
func (k *Kubernetes) Namespace(ctx context.Context, name string) (inject.Namespace, error) {
	var before knownNamespace
	if value, ok := k.known.Get(name); ok {
		if before = value.(knownNamespace); time.Now().Before(before.until) {
			return before.Namespace, nil
		}
	}
	read := k.inFlight.DoChan(name, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), labelsTimeout) // others wait for it too
		defer cancel()
		ns, err := k.core.Namespaces().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return before.Namespace, fmt.Errorf("get namespace %s: %w", name, err)
		}
		now := inject.Namespace{Name: name, Labels: ns.Labels, Annotations: ns.Annotations}
		maps.DeleteFunc(now.Annotations, func(key, _ string) bool { return !slices.Contains(carrier.MeshKeys(), key) })
		k.known.Add(name, knownNamespace{now, time.Now().Add(labelsLast)}, labelsKept)
		return now, nil
	})
	select {
	case result := <-read:
		namespace, _ := result.Val.(inject.Namespace)
		return namespace, result.Err
	case <-ctx.Done():
		return before.Namespace, ctx.Err()
	}
}
