package ingress

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lastcall-dev/lastcall/gateway"
)

// build is one building of the routes.
type build struct {
	f        *Follower
	routes   *gateway.Routes
	targets  map[target]*destination
	used     map[types.NamespacedName]bool
	problems map[string]bool
}

// rebuild makes all routes anew, keeping the pools, and the connections in them, that are
// still used. It is called with mu held, as is everything below.
func (f *Follower) rebuild() {
	b := &build{f, &gateway.Routes{}, make(map[target]*destination), make(map[types.NamespacedName]bool), make(map[string]bool)}
	var ours []*networkingv1.Ingress
	if s := f.o.Service; s.Name != "" {
		b.routes.AddDefault("", b.to(s.NamespacedName.String(), s.NamespacedName, s.Port))
	} else {
		ours = f.ours()
		for _, in := range ours {
			b.addRules(in)
		}
		b.addDefaults(ours)
	}
	f.o.Gateway.SetRoutes(b.routes)
	for t, d := range f.targets {
		if b.targets[t] == nil {
			d.pool.Close()
		}
	}
	f.targets, f.used = b.targets, b.used
	f.show(b, ours)
	f.tell(b.problems)
	f.o.Gateway.Reloaded("routes", nil)
	if f.status != nil {
		f.status.want(ours)
	}
}

// ours lists the Ingresses of this gateway, the oldest first: where two say the same, it was
// there before.
func (f *Follower) ours() []*networkingv1.Ingress {
	c := newClasses(f.o, all[*networkingv1.IngressClass](f.classes))
	list := slices.DeleteFunc(all[*networkingv1.Ingress](f.ingresses), func(in *networkingv1.Ingress) bool { return !c.ours(in) })
	slices.SortFunc(list, func(a, b *networkingv1.Ingress) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return list
}

func nameOf(in *networkingv1.Ingress) string { return in.Namespace + "/" + in.Name }

// addRules adds an Ingress' rules, and its default backend for the hosts that it names.
func (b *build) addRules(in *networkingv1.Ingress) {
	for _, rule := range in.Spec.Rules {
		host := strings.ToLower(rule.Host)
		if rule.HTTP != nil {
			for i := range rule.HTTP.Paths {
				b.addPath(in, host, &rule.HTTP.Paths[i])
			}
		}
		if r := b.backend(in, in.Spec.DefaultBackend); r != nil && host != "" {
			b.routes.AddDefault(host, r)
		}
	}
}

func (b *build) addPath(in *networkingv1.Ingress, host string, p *networkingv1.HTTPIngressPath) {
	kind := gateway.Prefix // ImplementationSpecific is left to us, and is the same
	if deref(p.PathType, networkingv1.PathTypeImplementationSpecific) == networkingv1.PathTypeExact {
		kind = gateway.Exact
	}
	r := b.backend(in, &p.Backend)
	if r != nil && !b.routes.Add(host, kind, cmp.Or(p.Path, "/"), r) {
		b.problem("ingress %s: host %q, path %q is an older ingress' already, and stays so", nameOf(in), host, p.Path)
	}
}

// addDefaults says where requests go that no rule matches: first come Ingresses that have
// nothing but a default backend.
func (b *build) addDefaults(ours []*networkingv1.Ingress) {
	for _, alone := range []bool{true, false} {
		for _, in := range ours {
			if r := b.backend(in, in.Spec.DefaultBackend); r != nil && (len(in.Spec.Rules) == 0) == alone {
				b.routes.AddDefault("", r)
			}
		}
	}
}

// backend is nil for one that leads nowhere.
func (b *build) backend(in *networkingv1.Ingress, to *networkingv1.IngressBackend) *gateway.Route {
	switch {
	case to == nil:
		return nil
	case to.Service == nil:
		b.problem("ingress %s: a backend is no service, which is all that is served", nameOf(in))
		return nil
	}
	port := Port{Name: to.Service.Port.Name, Number: to.Service.Port.Number}
	return b.to(nameOf(in), types.NamespacedName{Namespace: in.Namespace, Name: to.Service.Name}, port)
}

// to is the route to a Service's port. One that is not there has no endpoints: its requests
// get a 503 until it is.
func (b *build) to(name string, service types.NamespacedName, port Port) *gateway.Route {
	b.used[service] = true
	t := target{service: service, port: port.String(), missing: true}
	var families []corev1.IPFamily
	var protocol gateway.Protocol
	s, ok := get[*corev1.Service](b.f.services, service.String())
	switch {
	case !ok:
		b.problem("%s: there is no service %s", name, service)
	case s.Spec.Type == corev1.ServiceTypeExternalName:
		b.problem("%s: service %s is an external name, which is not served", name, service)
	default:
		if p, ok := portOf(s, port); ok {
			t.port, t.missing, families, protocol = p.Name, false, s.Spec.IPFamilies, protocolOf(p)
		} else {
			b.problem("%s: service %s has no TCP port %s", name, service, port)
		}
	}
	d := b.targets[t]
	if d == nil {
		if d = b.f.targets[t]; d == nil {
			d = &destination{pool: b.f.o.Gateway.NewPool(fmt.Sprintf("%s/%s", service, cmp.Or(t.port, port.String())))}
		}
		d.families, d.protocol = families, protocol
		b.targets[t] = d
		if !t.missing {
			b.f.fill(t, d)
		}
	}
	return &gateway.Route{Name: name, Pool: d.pool}
}

func (b *build) problem(format string, args ...any) { b.problems[fmt.Sprintf(format, args...)] = true }

// tell logs the problems that are new, and the end of those that are over.
func (f *Follower) tell(now map[string]bool) {
	for _, p := range slices.Sorted(maps.Keys(now)) {
		if !f.problems[p] {
			f.log.Warn("part of the configuration is without effect", "problem", p)
		}
	}
	for _, p := range slices.Sorted(maps.Keys(f.problems)) {
		if !now[p] {
			f.log.Info("a problem is over", "problem", p)
		}
	}
	f.problems = now
}
