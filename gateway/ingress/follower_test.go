package ingress

import (
	"errors"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

var now = metav1.UpdateOptions{}

// From the first list to the last change: each is in the routing with its event.
func TestFollows(t *testing.T) {
	in(t, nil, cluster(ing("shop", 0, "shop.example/ web:http"), web("web", "10.0.0.1", "10.0.0.2")), func(w *world) {
		if !w.synced || w.f.Pending() != "" {
			t.Fatal("not synced:", w.f.Pending())
		}
		w.want("shop.example/x", "default/shop → 10.0.0.1:8080 10.0.0.2:8080")
		w.want("other.example/x", "nowhere")

		slices := w.cluster.DiscoveryV1().EndpointSlices("default")
		w.must(slices.Update(t.Context(), relabelled(slice("web-1", "10.0.0.1 ready=false serving terminating", "10.0.0.2 ready"), "web"), now))
		w.want("shop.example/x", "default/shop → 10.0.0.2:8080")
		w.must(slices.Update(t.Context(), relabelled(slice("web-1", "10.0.0.1 ready=false serving terminating", "10.0.0.2 ready=false serving=false"), "web"), now))
		w.want("shop.example/x", "default/shop → 10.0.0.1:8080")
		w.must(slices.Create(t.Context(), relabelled(slice("web-2", "10.0.0.3 ready"), "web"), metav1.CreateOptions{}))
		w.want("shop.example/x", "default/shop → 10.0.0.3:8080")
		w.must(nil, slices.Delete(t.Context(), "web-2", metav1.DeleteOptions{}))
		w.want("shop.example/x", "default/shop → 10.0.0.1:8080")
		w.must(slices.Create(t.Context(), relabelled(slice("other-1", "10.0.0.9"), "other"), metav1.CreateOptions{}))
		w.want("shop.example/x", "default/shop → 10.0.0.1:8080")

		all := w.cluster.NetworkingV1().Ingresses("default")
		w.must(all.Update(t.Context(), ing("shop", 0, "new.example/ web:80"), now))
		w.want("shop.example/", "nowhere")
		w.want("new.example/", "default/shop → 10.0.0.1:8080")
		w.must(nil, all.Delete(t.Context(), "shop", metav1.DeleteOptions{}))
		w.want("new.example/", "nowhere")
	})
}

// A pool, and with it the connections to its endpoints, outlives a change of the routes.
func TestPoolsStay(t *testing.T) {
	in(t, nil, cluster(ing("shop", 0, "shop.example/ web:http"), web("web", "10.0.0.1")), func(w *world) {
		before := w.g.Lookup("shop.example", "/").Pool
		w.must(w.cluster.NetworkingV1().Ingresses("default").Create(t.Context(), ing("more", 1, "more.example/ web:80"), metav1.CreateOptions{}))
		if w.g.Lookup("shop.example", "/").Pool != before || w.g.Lookup("more.example", "/").Pool != before {
			t.Error("another pool for the same port of the same service")
		}
	})
}

func TestRules(t *testing.T) {
	two := cluster(web("a", "10.0.0.1"), web("b", "10.0.0.2"))
	for _, tt := range []struct {
		name    string
		objects []runtime.Object
		goes    map[string]string
		log     string
	}{
		{"the types of paths", cluster(ing("i", 0, "x.example/ a:80", "x.example/exact Exact b:80", "x.example/own ImplementationSpecific b:80")), map[string]string{
			"x.example/exact": "default/i → 10.0.0.2:8080", "x.example/exact/": "default/i → 10.0.0.1:8080",
			"x.example/own/x": "default/i → 10.0.0.2:8080", "x.example/ownx": "default/i → 10.0.0.1:8080",
		}, ""},
		{"implementation-specific without a path is all", cluster(ing("i", 0, "x.example/ ImplementationSpecific b:80")), map[string]string{"x.example/any": "default/i → 10.0.0.2:8080"}, ""},
		{"a wildcard", cluster(ing("i", 0, "*.Example/ a:80")), map[string]string{"x.example/": "default/i → 10.0.0.1:8080", "x.y.example/": "nowhere", "example/": "nowhere"}, ""},
		{"the older one has it", cluster(ing("young", 9, "x.example/ b:80"), ing("old", 1, "x.example/ a:80")), map[string]string{"x.example/": "default/old → 10.0.0.1:8080"},
			`ingress default/young: host \"x.example\", path \"/\" already belongs to an older ingress`},
		{"of the same age, by name", cluster(ing("q", 1, "x.example/ b:80"), ing("p", 1, "x.example/ a:80")), map[string]string{"x.example/": "default/p → 10.0.0.1:8080"}, ""},
		{"a default backend alone", cluster(ing("i", 0, "* a:80")), map[string]string{"any.example/x": "default/i → 10.0.0.1:8080"}, ""},
		{"a default backend for hosts", cluster(ing("i", 0, "x.example/app b:80", "* a:80")), map[string]string{
			"x.example/app": "default/i → 10.0.0.2:8080", "x.example/": "default/i → 10.0.0.1:8080", "y.example/": "default/i → 10.0.0.1:8080",
		}, ""},
		{"one that has nothing else goes before an older one's for its hosts", cluster(ing("old", 0, "x.example/app b:80", "* a:80"), ing("alone", 5, "* b:80")), map[string]string{
			"x.example/": "default/old → 10.0.0.1:8080", "y.example/": "default/alone → 10.0.0.2:8080",
		}, ""},
		{"no such service, and then no such port", cluster(ing("i", 0, "x.example/ gone:80", "y.example/ a:81", "z.example/ a:https")), map[string]string{
			"x.example/": "default/i → ", "y.example/": "default/i → ", "z.example/": "default/i → ",
		}, "default/i: service default/a has no TCP port 81"},
		{"an external name", cluster(ing("i", 0, "x.example/ ext:80"), external("ext")), map[string]string{"x.example/": "default/i → "}, "service default/ext has type ExternalName, which is not supported"},
		{"a backend that is no service", cluster(bucket(ing("i", 0, "x.example/ a:80", "y.example/ a:80"))), map[string]string{"x.example/": "nowhere", "y.example/": "default/i → 10.0.0.1:8080"},
			"ingress default/i: a backend is not a service"},
		{"a rule without paths", cluster(noPaths(ing("i", 0, "x.example/ b:80", "* a:80"))), map[string]string{"x.example/": "default/i → 10.0.0.1:8080"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in(t, nil, cluster(two, tt.objects), func(w *world) {
				if got := w.logged(); !strings.Contains(got, tt.log) {
					t.Errorf("logged\n%s\nwant %q in it", got, tt.log)
				}
				for url, want := range tt.goes {
					w.want(url, want)
				}
			})
		})
	}
}

func external(name string) *corev1.Service {
	s := service(name, corev1.ServicePort{Port: 80})
	s.Spec.Type, s.Spec.ExternalName = corev1.ServiceTypeExternalName, "db.example"
	return s
}

func bucket(i *networkingv1.Ingress) *networkingv1.Ingress {
	i.Spec.Rules[0].HTTP.Paths[0].Backend = networkingv1.IngressBackend{Resource: &corev1.TypedLocalObjectReference{Kind: "Bucket", Name: "b"}}
	return i
}

func noPaths(i *networkingv1.Ingress) *networkingv1.Ingress {
	i.Spec.Rules[0].HTTP = nil
	return i
}

// class is an IngressClass.
func class(name, controller string, isDefault bool) *networkingv1.IngressClass {
	c := &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.IngressClassSpec{Controller: controller}}
	if isDefault {
		c.Annotations = map[string]string{networkingv1.AnnotationIsDefaultIngressClass: "true"}
	}
	return c
}

func TestClasses(t *testing.T) {
	says := func(class *string, annotation string) *networkingv1.Ingress {
		i := ing("i", 0, "x.example/ web:80")
		if i.Spec.IngressClassName = class; annotation != "" {
			i.Annotations = map[string]string{annotationClass: annotation}
		}
		return i
	}
	for _, tt := range []struct {
		name    string
		ingress *networkingv1.Ingress
		classes []runtime.Object
		ours    bool
	}{
		{"by name, without an object", says(new("lastcall"), ""), nil, true},
		{"another", says(new("nginx"), ""), nil, false},
		{"by the object's controller, whatever its name", says(new("edge"), ""), cluster(class("edge", DefaultController, false)), true},
		{"our name is another controller's", says(new("lastcall"), ""), cluster(class("lastcall", "k8s.io/ingress-nginx", false)), false},
		{"by the annotation", says(nil, "lastcall"), nil, true},
		{"by the annotation, another", says(nil, "nginx"), cluster(class("lastcall", DefaultController, true)), false},
		{"the field before the annotation", says(new("nginx"), "lastcall"), nil, false},
		{"no class, and ours is the default", says(nil, ""), cluster(class("edge", DefaultController, true)), true},
		{"no class, and ours is not the default", says(nil, ""), cluster(class("edge", DefaultController, false)), false},
		{"no class, and another is the default", says(nil, ""), cluster(class("nginx", "k8s.io/ingress-nginx", true), class("lastcall", DefaultController, false)), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in(t, nil, cluster(web("web", "10.0.0.1"), tt.ingress, tt.classes), func(w *world) {
				want := "nowhere"
				if tt.ours {
					want = "default/i → 10.0.0.1:8080"
				}
				w.want("x.example/", want)
			})
		})
	}
	t.Run("a class comes and goes", func(t *testing.T) {
		in(t, nil, cluster(web("web", "10.0.0.1"), says(new("edge"), "")), func(w *world) {
			w.want("x.example/", "nowhere")
			all := w.cluster.NetworkingV1().IngressClasses()
			w.must(all.Create(t.Context(), class("edge", DefaultController, false), metav1.CreateOptions{}))
			w.want("x.example/", "default/i → 10.0.0.1:8080")
			w.must(nil, all.Delete(t.Context(), "edge", metav1.DeleteOptions{}))
			w.want("x.example/", "nowhere")
		})
	})
}

// A Service that comes later, changes its port or goes.
func TestServiceChanges(t *testing.T) {
	eps := relabelled(slice("web-1", "10.0.0.1"), "web")
	in(t, nil, cluster(ing("i", 0, "x.example/ web:80"), eps), func(w *world) {
		w.want("x.example/", "default/i → ")
		w.wantLog("default/i: no service default/web")
		all := w.cluster.CoreV1().Services("default")
		w.must(all.Create(t.Context(), service("web", corev1.ServicePort{Name: "http", Port: 80}), metav1.CreateOptions{}))
		w.want("x.example/", "default/i → 10.0.0.1:8080")
		w.wantLog("configuration problem resolved")
		w.must(all.Update(t.Context(), service("web", corev1.ServicePort{Name: "http", Port: 81}), now))
		w.want("x.example/", "default/i → ")
		w.must(nil, all.Delete(t.Context(), "web", metav1.DeleteOptions{}))
		w.wantLog("no service default/web")
	})
}

// One Service without any Ingress: no other resource is listed.
func TestOneService(t *testing.T) {
	one := func(o *Options) {
		o.Service, o.Certificates = Service{NamespacedName: types.NamespacedName{Namespace: "default", Name: "web"}, Port: Port{Number: 80}}, nil
	}
	in(t, one, cluster(web("web", "10.0.0.1"), ing("i", 0, "x.example/ other:80")), func(w *world) {
		w.want("whatever/x", "default/web → 10.0.0.1:8080")
		for _, a := range w.cluster.Actions() {
			if r := a.GetResource().Resource; r != "services" && r != "endpointslices" || a.GetNamespace() != "default" {
				t.Errorf("asked to %s %s in namespace %q", a.GetVerb(), r, a.GetNamespace())
			}
			if l, ok := a.(clienttesting.ListAction); ok {
				if got := l.GetListRestrictions(); got.Fields.String() != "metadata.name=web" && got.Labels.String() != "kubernetes.io/service-name=web" {
					t.Errorf("all %s are listed", a.GetResource().Resource)
				}
			}
		}
	})
}

// No request is served before the initial sync, and /ready names the verb and the resource that are forbidden.
func TestForbidden(t *testing.T) {
	for _, resource := range []string{"ingresses", "secrets", "endpointslices"} {
		t.Run(resource, func(t *testing.T) {
			var allowed atomic.Bool
			forbid := func(o *Options) {
				for _, verb := range []string{"list", "watch"} {
					o.API.(*fake.Clientset).PrependReactor(verb, resource, func(a clienttesting.Action) (bool, runtime.Object, error) {
						gr := schema.GroupResource{Group: a.GetResource().Group, Resource: resource}
						return !allowed.Load(), nil, apierrors.NewForbidden(gr, "", errors.New(`User "system:serviceaccount:x:y" cannot `+verb+` resource`))
					})
				}
			}
			in(t, forbid, cluster(ing("i", 0, "x.example/ web:80"), web("web", "10.0.0.1")), func(w *world) {
				w.want("x.example/", "nowhere")
				if got := w.f.Pending(); w.synced || !strings.Contains(got, "not allowed to ") || !strings.Contains(got, " "+resource) {
					t.Errorf("synced %v, pending %q", w.synced, got)
				}
				w.wantLog("not serving yet")
				allowed.Store(true)
				time.Sleep(5 * time.Minute) // the back-off's
				w.want("x.example/", "default/i → 10.0.0.1:8080")
				if !w.synced || w.f.Pending() != "" {
					t.Errorf("synced %v, pending %q", w.synced, w.f.Pending())
				}
			})
		})
	}
}

// While the API server is unreachable, the last known state stays in force. The log has its loss and its return once.
func TestServerGoesAway(t *testing.T) {
	in(t, nil, cluster(ing("i", 0, "x.example/ web:80"), web("web", "10.0.0.1")), func(w *world) {
		w.f.slices.note(t.Context(), "watch", &url.Error{Op: "Get", URL: "https://192.0.2.1/apis?watch=true", Err: errors.New("connection refused")})
		w.wantLog(`"cannot watch the cluster; keeping the last known state" resource=endpointslices.discovery.k8s.io error="watch endpointslices.discovery.k8s.io: API server unreachable: connection refused"`)
		w.f.slices.note(t.Context(), "list", errors.New("connection refused by another port"))
		if got := w.logged(); got != "" {
			t.Errorf("logged again:\n%s", got)
		}
		w.want("x.example/", "default/i → 10.0.0.1:8080")
		w.f.slices.note(t.Context(), "watch", nil)
		w.wantLog("API server reachable again")
	})
}

// relabelled makes a slice another Service's.
func relabelled(s *discoveryv1.EndpointSlice, service string) *discoveryv1.EndpointSlice {
	s.Labels = map[string]string{discoveryv1.LabelServiceName: service}
	return s
}
