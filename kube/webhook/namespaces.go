package webhook

import (
	"context"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/util/cache"

	"github.com/lastcall-dev/lastcall/kube/inject"
)

// Limits of the cache of namespaces.
const (
	labelsLast    = 10 * time.Second // until a namespace is read again
	labelsKept    = time.Hour        // how long the previous state is used if it cannot be read
	labelsTimeout = time.Second      // how long a pod's creation waits for them
	maxNamespaces = 1000
)

// namespaces caches what injection reads of namespaces for a short time. Pods that are created at the same time in one
// namespace share one look-up.
type namespaces struct {
	known    *cache.LRUExpireCache
	inFlight *singleflight.Group
}

type knownNamespace struct {
	inject.Namespace
	until time.Time
}

func newNamespaces() namespaces {
	return namespaces{cache.NewLRUExpireCache(maxNamespaces), &singleflight.Group{}}
}

// of returns a namespace; the previous state and an error if it cannot be read now.
func (n namespaces) of(ctx context.Context, name string, get func(context.Context) (inject.Namespace, error)) (inject.Namespace, error) {
	var before knownNamespace
	if value, ok := n.known.Get(name); ok {
		if before = value.(knownNamespace); time.Now().Before(before.until) {
			return before.Namespace, nil
		}
	}
	read := n.inFlight.DoChan(name, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), labelsTimeout) // others wait for it too
		defer cancel()
		namespace, err := get(ctx)
		if err != nil {
			return before.Namespace, err
		}
		n.known.Add(name, knownNamespace{namespace, time.Now().Add(labelsLast)}, labelsKept)
		return namespace, nil
	})
	select {
	case result := <-read:
		namespace, _ := result.Val.(inject.Namespace)
		return namespace, result.Err
	case <-ctx.Done():
		return before.Namespace, ctx.Err()
	}
}
