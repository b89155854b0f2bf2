package webhook

import (
	"context"
	"sync"
	"time"
)

// Limits of the cache of namespaces.
const (
	labelsLast    = 10 * time.Second // lifetime of a cached entry
	labelsTimeout = time.Second      // how long a pod's creation waits for them
	maxNamespaces = 10_000
	maxLabels     = 4 << 20 // bytes
)

// namespaceLabels caches the labels of namespaces for a short time. Pods that are created at the same time in one
// namespace share one look-up.
type namespaceLabels struct {
	mu     sync.Mutex // guards what follows
	known  map[string]*knownLabels
	length int // bytes of the labels read since it was empty
}

type knownLabels struct {
	ready  chan struct{} // closed when the look-up has ended
	labels map[string]string
	err    error
	until  time.Time // end of the entry's lifetime
}

// of returns a namespace's labels; the previous ones and an error if they cannot be read now.
func (n *namespaceLabels) of(ctx context.Context, name string, get func(context.Context) (map[string]string, error)) (map[string]string, error) {
	n.mu.Lock()
	l := n.known[name]
	if before := l; l == nil || isOver(l.ready) && time.Now().After(l.until) {
		l = &knownLabels{ready: make(chan struct{})}
		n.remember(name, l)
		n.mu.Unlock()
		n.look(context.WithoutCancel(ctx), l, before, get) // others wait for it too
		return l.labels, l.err
	}
	n.mu.Unlock()
	select {
	case <-l.ready:
		return l.labels, l.err
	case <-ctx.Done():
		return nil, ctx.Err()
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

func (n *namespaceLabels) look(ctx context.Context, l, before *knownLabels, get func(context.Context) (map[string]string, error)) {
	ctx, cancel := context.WithTimeout(ctx, labelsTimeout)
	defer cancel()
	if before != nil {
		l.labels = before.labels
	}
	defer close(l.ready)
	labels, err := get(ctx)
	if l.err = err; err != nil {
		return
	}
	l.labels, l.until = labels, time.Now().Add(labelsLast)
	n.mu.Lock()
	defer n.mu.Unlock()
	for key, value := range labels {
		n.length += len(key) + len(value)
	}
}

// remember is called with mu held. Dropped entries are looked up again.
func (n *namespaceLabels) remember(name string, l *knownLabels) {
	if n.known == nil || len(n.known) >= maxNamespaces || n.length > maxLabels {
		n.known, n.length = map[string]*knownLabels{}, 0
	}
	n.known[name] = l
}
