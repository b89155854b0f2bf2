package ingress

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func secured(i *networkingv1.Ingress, secret string, hosts ...string) *networkingv1.Ingress {
	i.Spec.TLS = append(i.Spec.TLS, networkingv1.IngressTLS{Hosts: hosts, SecretName: secret})
	return i
}

func TestCertificates(t *testing.T) {
	young, old := ing("young", 5), ing("old", 1)
	secured(young, "two", "shop.example", "young.example")
	secured(old, "one", "shop.example", "*.WILD.example")
	secured(old, "sans") // those of the certificate
	secured(old, "")     // the default one
	all := cluster(young, old, secret(t, "one", "1", "one"), secret(t, "two", "1", "two"), secret(t, "sans", "1", "a.sans.example", "b.sans.example"), secret(t, "fallback", "1", "fallback"))
	withFallback := func(o *Options) { o.DefaultSecret = types.NamespacedName{Namespace: "default", Name: "fallback"} }
	in(t, withFallback, all, func(w *world) {
		for host, want := range map[string]string{
			"shop.example": "one", "young.example": "two", "a.wild.example": "one", "a.b.wild.example": "fallback",
			"b.sans.example": "a.sans.example", "SHOP.example": "one", "": "fallback", "nobody.example": "fallback",
		} {
			if got := w.shows(host); got != want {
				t.Errorf("%q is shown %s, want %s", host, got, want)
			}
		}
	})
	in(t, nil, all, func(w *world) {
		if got := w.shows("nobody.example"); got != "nothing" {
			t.Error("without a default certificate it shows", got)
		}
	})
}

// A replaced certificate is used in the next handshake. If it is invalid or deleted, the previous one stays, and the log
// has the problem.
func TestCertificateChanges(t *testing.T) {
	in(t, nil, cluster(secured(ing("i", 0, "shop.example/ web:80"), "tls", "shop.example"), web("web", "10.0.0.1"), secret(t, "other", "1", "other")), func(w *world) {
		all := w.cluster.CoreV1().Secrets("default")
		if got := w.shows("shop.example"); got != "nothing" {
			t.Error(got)
		}
		w.wantLog("certificate default/tls of ingress default/i: no such secret of type kubernetes.io/tls")
		w.must(all.Create(t.Context(), secret(t, "tls", "1", "first"), metav1.CreateOptions{}))
		if got := w.shows("shop.example"); got != "first" {
			t.Error(got)
		}
		w.wantLog("certificate updated")
		w.must(all.Update(t.Context(), secret(t, "tls", "2", "second"), now))
		if got := w.shows("shop.example"); got != "second" {
			t.Error(got)
		}

		bad := secret(t, "tls", "3", "third")
		bad.Data[corev1.TLSPrivateKeyKey] = secret(t, "x", "1", "x").Data[corev1.TLSPrivateKeyKey]
		w.must(all.Update(t.Context(), bad, now))
		if got := w.shows("shop.example"); got != "second" {
			t.Error(got)
		}
		w.wantLog("private key does not match public key; keeping the previous one")
		w.must(nil, all.Delete(t.Context(), "tls", metav1.DeleteOptions{}))
		if got := w.shows("shop.example"); got != "second" {
			t.Error(got)
		}
		w.wantLog("no such secret of type kubernetes.io/tls; keeping the previous one")
		w.logged()
		w.must(all.Update(t.Context(), secret(t, "other", "2", "other"), now)) // not in use
		if got := w.logged(); got != "" {
			t.Errorf("a secret that is not in use:\n%s", got)
		}
		w.must(all.Create(t.Context(), secret(t, "tls", "4", "fourth"), metav1.CreateOptions{}))
		if got := w.shows("shop.example"); got != "fourth" {
			t.Error(got)
		}
	})
}

// The address is written where it is not yet, and only for our Ingresses.
func TestStatus(t *testing.T) {
	for _, tt := range []struct {
		address string
		want    networkingv1.IngressLoadBalancerIngress
	}{
		{"192.0.2.1", networkingv1.IngressLoadBalancerIngress{IP: "192.0.2.1"}},
		{"2001:db8::1", networkingv1.IngressLoadBalancerIngress{IP: "2001:db8::1"}},
		{"lb.example", networkingv1.IngressLoadBalancerIngress{Hostname: "lb.example"}},
		{"", networkingv1.IngressLoadBalancerIngress{}},
	} {
		t.Run(tt.address, func(t *testing.T) {
			has, other := ing("has", 0, "y.example/ web:80"), ing("other", 0, "z.example/ web:80")
			has.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{tt.want}
			other.Spec.IngressClassName = new("nginx")
			in(t, func(o *Options) { o.PublishAddress = tt.address }, cluster(ing("i", 0, "x.example/ web:80"), has, other, web("web")), func(w *world) {
				i, err := w.cluster.NetworkingV1().Ingresses("default").Get(t.Context(), "i", metav1.GetOptions{})
				w.must(nil, err)
				got := i.Status.LoadBalancer.Ingress
				if tt.address == "" && len(got) > 0 || tt.address != "" && (len(got) != 1 || got[0].IP != tt.want.IP || got[0].Hostname != tt.want.Hostname) {
					t.Errorf("status %+v, want %+v", got, tt.want)
				}
				var patched []string
				for _, a := range w.cluster.Actions() {
					if a.GetVerb() == "patch" {
						patched = append(patched, a.GetSubresource())
					}
				}
				if want := []string{"status"}; tt.address != "" && !slices.Equal(patched, want) || tt.address == "" && patched != nil {
					t.Errorf("patched %v", patched)
				}
			})
		})
	}
}

func TestBadOptions(t *testing.T) {
	one := Service{NamespacedName: types.NamespacedName{Namespace: "a", Name: "b"}, Port: Port{Number: 1}}
	for _, tt := range []struct {
		name string
		o    Options
		want string
	}{
		{"an address with a port", Options{PublishAddress: "lb.example:443"}, "must be an IP address or a host name, without a port"},
		{"an address for one Service", Options{PublishAddress: "lb.example", Service: one}, "an address to publish needs Ingresses"},
		{"a secret that is not looked at", Options{Namespace: "x", DefaultSecret: types.NamespacedName{Namespace: "y", Name: "z"}}, "must be in namespace x"},
	} {
		if err := tt.o.check(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q in it", tt.name, err, tt.want)
		}
	}
	for text, want := range map[string]string{"a/b:80": "80", "a/b:http": "http", "a/b": "", "b:80": "", "a/b:": "", "a/b:0": "", "a/b:70000": "", "a/b/c:80": "", "/b:80": ""} {
		s, err := ParseService(text)
		if (err == nil) != (want != "") || err == nil && s.Port.String() != want {
			t.Errorf("%q: %+v, %v", text, s, err)
		}
	}
}
