package webhook

import (
	"context"
	"sync"
	"time"
)

// Bounds of what is remembered of namespaces.
const (
	labelsLast    = 10 * time.Second // how long labels are taken as known
	labelsTimeout = time.Second      // how long a pod's creation waits for them
	maxNamespaces = 10_000
	maxLabels     = 4 << 20 // bytes
)

// namespaceLabels remembers the labels of namespaces for a short while. Pods that are created at once in one
// namespace share one look-up.
type namespaceLabels struct {
	mu     sync.Mutex // guards what follows
	known  map[string]*knownLabels
	length int // bytes of the labels read since it was empty
}

type knownLabels struct {
	ready  chan struct{} // closed when the look-up is over
	labels map[string]string
	err    error
	until  time.Time // it is taken as known
}

// of returns a namespace's labels; those of before with an error when they cannot be read now.
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

// remember is called with mu held. What is thrown away is looked up once more.
func (n *namespaceLabels) remember(name string, l *knownLabels) {
	if n.known == nil || len(n.known) >= maxNamespaces || n.length > maxLabels {
		n.known, n.length = map[string]*knownLabels{}, 0
	}
	n.known[name] = l
}
