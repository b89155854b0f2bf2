package ingress

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/lastcall-dev/lastcall/gateway"
)

// Follower is a gateway.Source: it applies a cluster's routes, endpoints and certificates to a gateway.
type Follower struct {
	o   Options
	log *slog.Logger

	ingresses, classes, services, slices, secrets *resource // nil for those that are not watched

	mu       sync.Mutex // guards what follows; held while a change is applied
	synced   bool
	targets  map[target]*destination
	used     map[types.NamespacedName]bool
	problems map[string]bool
	shown    shown
	status   *publisher // nil without PublishAddress
}

// target is a port of a Service. port is its name, which EndpointSlices use, too.
type target struct {
	service types.NamespacedName
	port    string
	missing bool // the Service has no such port; port is then the reference to it
}

// destination is the pool of a target.
type destination struct {
	pool     *gateway.Pool
	families []corev1.IPFamily
	protocol gateway.Protocol
}

// byService indexes slices by their Service, namespace/name.
const byService = "service"

// New makes a Follower. Run starts it.
func New(o Options) (*Follower, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	f := &Follower{o: o, log: o.Log, targets: make(map[target]*destination), problems: make(map[string]bool)}
	f.shown.known = make(map[types.NamespacedName]parsed)
	in := o.namespace()
	var fields, labels string
	if o.Service.Name != "" {
		fields, labels = "metadata.name="+o.Service.Name, discoveryv1.LabelServiceName+"="+o.Service.Name
	}
	f.services = follow[*corev1.ServiceList]("services", o.API.CoreV1().Services(in), &corev1.Service{}, o.API, fields, "", nil, o.Log)
	f.slices = follow[*discoveryv1.EndpointSliceList]("endpointslices.discovery.k8s.io", o.API.DiscoveryV1().EndpointSlices(in), &discoveryv1.EndpointSlice{}, o.API, "", labels,
		cache.Indexers{byService: func(o any) ([]string, error) {
			return []string{serviceOf(o.(*discoveryv1.EndpointSlice)).String()}, nil
		}}, o.Log)
	if o.Service.Name == "" {
		f.ingresses = follow[*networkingv1.IngressList]("ingresses.networking.k8s.io", o.API.NetworkingV1().Ingresses(in), &networkingv1.Ingress{}, o.API, "", "", nil, o.Log)
		f.classes = follow[*networkingv1.IngressClassList]("ingressclasses.networking.k8s.io", o.API.NetworkingV1().IngressClasses(), &networkingv1.IngressClass{}, o.API, "", "", nil, o.Log)
	}
	switch {
	case o.Certificates == nil:
	case o.Service.Name == "":
		f.secrets = follow[*corev1.SecretList]("secrets", o.API.CoreV1().Secrets(in), &corev1.Secret{}, o.API, "type="+string(corev1.SecretTypeTLS), "", nil, o.Log)
	case o.DefaultSecret.Name != "":
		f.secrets = follow[*corev1.SecretList]("secrets", o.API.CoreV1().Secrets(in), &corev1.Secret{}, o.API, "metadata.name="+o.DefaultSecret.Name, "", nil, o.Log)
	}
	if o.PublishAddress != "" {
		f.status = newPublisher(o)
	}
	return f, f.handleEvents()
}

// handleEvents registers the handlers of each kind of change.
func (f *Follower) handleEvents() error {
	err := each(f.slices, func(before, after *discoveryv1.EndpointSlice) {
		f.work(func() {
			if before != nil {
				f.refill(serviceOf(before))
			}
			if after != nil && (before == nil || serviceOf(before) != serviceOf(after)) {
				f.refill(serviceOf(after))
			}
		})
	})
	if err == nil {
		err = each(f.services, func(before, after *corev1.Service) {
			f.work(func() {
				s := after
				if s == nil {
					s = before
				}
				if f.used[types.NamespacedName{Namespace: s.Namespace, Name: s.Name}] {
					f.rebuild()
				}
			})
		})
	}
	if err == nil && f.ingresses != nil {
		err = each(f.ingresses, func(before, after *networkingv1.Ingress) {
			if before != nil && after != nil && equality.Semantic.DeepEqual(before.Spec, after.Spec) && before.Annotations[annotationClass] == after.Annotations[annotationClass] {
				return // only its status, usually by our own patch
			}
			f.work(f.rebuild)
		})
	}
	if err == nil && f.classes != nil {
		err = each(f.classes, func(_, _ *networkingv1.IngressClass) { f.work(f.rebuild) })
	}
	if err == nil && f.secrets != nil {
		err = each(f.secrets, func(before, after *corev1.Secret) {
			s := after
			if s == nil {
				s = before
			}
			f.work(func() { f.reload(types.NamespacedName{Namespace: s.Namespace, Name: s.Name}) })
		})
	}
	return err
}

// serviceOf returns the Service that a slice belongs to.
func serviceOf(s *discoveryv1.EndpointSlice) types.NamespacedName {
	return types.NamespacedName{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]}
}

// work calls do with mu held, unless the initial sync is still incomplete.
func (f *Follower) work(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.synced {
		do()
	}
}

func (f *Follower) resources() []*resource {
	var out []*resource
	for _, r := range []*resource{f.ingresses, f.classes, f.services, f.slices, f.secrets} {
		if r != nil {
			out = append(out, r)
		}
	}
	return out
}

// Pending implements gateway.Source: the resources that not listed yet, and why.
func (f *Follower) Pending() string {
	var out []string
	for _, r := range f.resources() {
		if what := r.pending(); what != "" {
			out = append(out, what)
		}
	}
	return strings.Join(out, "; ")
}

// Run implements gateway.Source. It watches the cluster until ctx ends, and calls synced when the state after the first
// lists has been applied.
func (f *Follower) Run(ctx context.Context, synced func()) error {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for _, r := range f.resources() {
		running.Go(func() { r.informer.RunWithContext(ctx) })
	}
	if f.status != nil {
		running.Go(func() { f.status.run(ctx) })
	}
	for _, r := range f.resources() {
		select {
		case <-r.informer.HasSyncedChecker().Done():
		case <-ctx.Done():
			return nil
		}
	}
	f.mu.Lock()
	f.synced = true
	f.rebuild()
	f.log.Info("initial sync complete", "targets", len(f.targets))
	f.mu.Unlock()
	synced()
	<-ctx.Done()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.synced = false
	for _, d := range f.targets {
		d.pool.Close()
	}
	return nil
}

// refill applies the endpoints of a Service.
func (f *Follower) refill(service types.NamespacedName) {
	if !f.used[service] {
		return
	}
	for t, d := range f.targets {
		if t.service == service && !t.missing {
			f.fill(t, d)
		}
	}
	f.o.Gateway.Reloaded("endpoints", nil)
}

func (f *Follower) fill(t target, d *destination) {
	found, err := f.slices.informer.GetIndexer().ByIndex(byService, t.service.String())
	if err != nil {
		panic(fmt.Sprintf("ingress: %v", err)) // the index exists: see New
	}
	eps := make([]*discoveryv1.EndpointSlice, 0, len(found))
	for _, o := range found {
		eps = append(eps, o.(*discoveryv1.EndpointSlice))
	}
	addrs, states := resolve(eps, t.port, d.families)
	d.pool.Replace(addrs, d.protocol, states)
}
