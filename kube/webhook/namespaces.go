package webhook

import (
	"context"
	"sync"
	"time"

	"github.com/lastcall-dev/lastcall/kube/inject"
)

// Limits of the cache of namespaces.
const (
	labelsLast    = 10 * time.Second // lifetime of a cached entry
	labelsTimeout = time.Second      // how long a pod's creation waits for them
	maxNamespaces = 10_000
	maxLabels     = 4 << 20 // bytes
)

// namespaces caches what injection reads of namespaces for a short time. Pods that are created at the same time in one
// namespace share one look-up.
type namespaces struct {
	mu     sync.Mutex // guards what follows
	known  map[string]*knownNamespace
	length int // bytes of the labels and annotations read since it was empty
}

type knownNamespace struct {
	ready     chan struct{} // closed when the look-up has ended
	namespace inject.Namespace
	err       error
	until     time.Time // end of the entry's lifetime
}

// of returns a namespace; the previous state and an error if it cannot be read now.
func (n *namespaces) of(ctx context.Context, name string, get func(context.Context) (inject.Namespace, error)) (inject.Namespace, error) {
	n.mu.Lock()
	l := n.known[name]
	if before := l; l == nil || isOver(l.ready) && time.Now().After(l.until) {
		l = &knownNamespace{ready: make(chan struct{})}
		n.remember(name, l)
		n.mu.Unlock()
		n.look(context.WithoutCancel(ctx), l, before, get) // others wait for it too
		return l.namespace, l.err
	}
	n.mu.Unlock()
	select {
	case <-l.ready:
		return l.namespace, l.err
	case <-ctx.Done():
		return inject.Namespace{}, ctx.Err()
	}
}

func isOver(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (n *namespaces) look(ctx context.Context, l, before *knownNamespace, get func(context.Context) (inject.Namespace, error)) {
	ctx, cancel := context.WithTimeout(ctx, labelsTimeout)
	defer cancel()
	if before != nil {
		l.namespace = before.namespace
	}
	defer close(l.ready)
	namespace, err := get(ctx)
	if l.err = err; err != nil {
		return
	}
	l.namespace, l.until = namespace, time.Now().Add(labelsLast)
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, said := range []map[string]string{namespace.Labels, namespace.Annotations} {
		for key, value := range said {
			n.length += len(key) + len(value)
		}
	}
}

// remember is called with mu held. Dropped entries are looked up again.
func (n *namespaces) remember(name string, l *knownNamespace) {
	if n.known == nil || len(n.known) >= maxNamespaces || n.length > maxLabels {
		n.known, n.length = map[string]*knownNamespace{}, 0
	}
	n.known[name] = l
}
