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

// build collects the routes, and what they refer to.
type build struct {
	f        *Follower
	routes   *gateway.Routes
	targets  map[target]*destination
	used     map[types.NamespacedName]bool
	problems map[string]bool
}

// rebuild replaces all routes. Pools that are still in use keep their connections. mu is held, as in all functions below.
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
	f.report(b.problems)
	f.o.Gateway.Reloaded("routes", nil)
	if f.status != nil {
		f.status.want(ours)
	}
}

// ours lists the Ingresses of this gateway, the oldest first: when two conflict, the older one wins.
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
	kind := gateway.Prefix // ImplementationSpecific is treated as Prefix
	if deref(p.PathType, networkingv1.PathTypeImplementationSpecific) == networkingv1.PathTypeExact {
		kind = gateway.Exact
	}
	r := b.backend(in, &p.Backend)
	if r != nil && !b.routes.Add(host, kind, cmp.Or(p.Path, "/"), r) {
		b.problem("ingress %s: host %q, path %q already belongs to an older ingress", nameOf(in), host, p.Path)
	}
}

// addDefaults sets the route of requests that match no rule. Ingresses with only a default backend take precedence.
func (b *build) addDefaults(ours []*networkingv1.Ingress) {
	for _, alone := range []bool{true, false} {
		for _, in := range ours {
			if r := b.backend(in, in.Spec.DefaultBackend); r != nil && (len(in.Spec.Rules) == 0) == alone {
				b.routes.AddDefault("", r)
			}
		}
	}
}

// backend returns the route to a backend, or nil if it has none.
func (b *build) backend(in *networkingv1.Ingress, to *networkingv1.IngressBackend) *gateway.Route {
	switch {
	case to == nil:
		return nil
	case to.Service == nil:
		b.problem("ingress %s: a backend is not a service; only services are supported", nameOf(in))
		return nil
	}
	port := Port{Name: to.Service.Port.Name, Number: to.Service.Port.Number}
	return b.to(nameOf(in), types.NamespacedName{Namespace: in.Namespace, Name: to.Service.Name}, port)
}

// to returns the route to a Service's port. While the Service or port does not exist, its requests get a 503.
func (b *build) to(name string, service types.NamespacedName, port Port) *gateway.Route {
	b.used[service] = true
	t := target{service: service, port: port.String(), missing: true}
	var families []corev1.IPFamily
	var protocol gateway.Protocol
	s, ok := get[*corev1.Service](b.f.services, service.String())
	switch {
	case !ok:
		b.problem("%s: no service %s", name, service)
	case s.Spec.Type == corev1.ServiceTypeExternalName:
		b.problem("%s: service %s has type ExternalName, which is not supported", name, service)
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

// report logs new problems, and those that no longer exist.
func (f *Follower) report(now map[string]bool) {
	for _, p := range slices.Sorted(maps.Keys(now)) {
		if !f.problems[p] {
			f.log.Warn("ignoring invalid configuration", "problem", p)
		}
	}
	for _, p := range slices.Sorted(maps.Keys(f.problems)) {
		if !now[p] {
			f.log.Info("configuration problem resolved", "problem", p)
		}
	}
	f.problems = now
}
