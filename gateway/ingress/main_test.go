package ingress

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"crypto/x509"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/lastcall-dev/lastcall/gateway"
	"github.com/lastcall-dev/lastcall/internal/sidecar/certificate/certificatetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a gateway that follows a cluster of objects, in a synctest bubble.
type world struct {
	t       *testing.T
	cluster *fake.Clientset
	g       *gateway.Gateway
	certs   *gateway.Certificates
	f       *Follower
	synced  bool

	mu  sync.Mutex
	log strings.Builder
}

func (w *world) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.Write(p)
}

// logged returns the log since its last call.
func (w *world) logged() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.log.Reset()
	return w.log.String()
}

// in plays play in a bubble, with a follower of the objects that ends with it.
func in(t *testing.T, change func(*Options), objects []runtime.Object, play func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, cluster: fake.NewClientset(objects...), certs: new(gateway.Certificates)}
		log := slog.New(slog.NewTextHandler(w, nil))
		var err error
		if w.g, err = gateway.New(gateway.Options{Log: log}); err != nil {
			t.Fatal(err)
		}
		o := Options{API: w.cluster, Gateway: w.g, Certificates: w.certs, Log: log}
		if change != nil {
			change(&o)
		}
		if w.f, err = New(o); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.f.Run(ctx, func() { w.synced = true }) }()
		synctest.Wait()
		play(w)
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// goes returns the destination of a request: "route → endpoints", or "nowhere".
func (w *world) goes(url string) string {
	w.t.Helper()
	host, path, _ := strings.Cut(url, "/")
	r := w.g.Lookup(host, "/"+path)
	if r == nil {
		return "nowhere"
	}
	return fmt.Sprintf("%s → %s", r.Name, strings.Join(r.Pool.Addrs(), " "))
}

func (w *world) want(url, want string) {
	w.t.Helper()
	synctest.Wait()
	if got := w.goes(url); got != want {
		w.t.Errorf("%s goes %q, want %q\n%s", url, got, want, w.logged())
	}
}

// must is for calls of the fake API; then the change has been worked in.
func (w *world) must(_ any, err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
	synctest.Wait()
}

func (w *world) wantLog(part string) {
	w.t.Helper()
	synctest.Wait()
	if got := w.logged(); !strings.Contains(got, part) {
		w.t.Errorf("logged\n%s\nwant %q in it", got, part)
	}
}

// began is the age of what is oldest.
var began = metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))

// web is Service default/NAME with port http = 80, and its slice.
func web(name string, endpoints ...string) []runtime.Object {
	s := slice(name+"-1", endpoints...)
	s.Labels = map[string]string{discoveryv1.LabelServiceName: name}
	return []runtime.Object{service(name, corev1.ServicePort{Name: "http", Port: 80}), s}
}

func service(name string, ports ...corev1.ServicePort) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.ServiceSpec{Ports: ports}}
}

// ing is an Ingress of class lastcall, as many seconds younger than the oldest; rules read
// "host/path Exact service:port", without a type Prefix; "* service:port" is the default backend.
func ing(name string, age int, rules ...string) *networkingv1.Ingress {
	i := &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(began.Add(time.Duration(age) * time.Second))},
		Spec:       networkingv1.IngressSpec{IngressClassName: new("lastcall")},
	}
	for _, rule := range rules {
		words := strings.Fields(rule)
		service, port, _ := strings.Cut(words[len(words)-1], ":")
		b := networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: service, Port: networkingv1.ServiceBackendPort{Name: port}}}
		if n := 0; strings.Trim(port, "0123456789") == "" {
			_, _ = fmt.Sscan(port, &n)
			b.Service.Port = networkingv1.ServiceBackendPort{Number: int32(n)}
		}
		if words[0] == "*" {
			i.Spec.DefaultBackend = &b
			continue
		}
		host, path, _ := strings.Cut(words[0], "/")
		kind := networkingv1.PathTypePrefix
		if len(words) == 3 {
			kind = networkingv1.PathType(words[1])
		}
		if path = "/" + path; kind == networkingv1.PathTypeImplementationSpecific {
			path = strings.TrimSuffix(path, "/") // it may be left out
		}
		i.Spec.Rules = append(i.Spec.Rules, networkingv1.IngressRule{Host: host, IngressRuleValue: networkingv1.IngressRuleValue{
			HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{Path: path, PathType: &kind, Backend: b}}},
		}})
	}
	return i
}

func cluster(lists ...any) []runtime.Object {
	var out []runtime.Object
	for _, l := range lists {
		switch l := l.(type) {
		case runtime.Object:
			out = append(out, l)
		case []runtime.Object:
			out = slices.Concat(out, l)
		}
	}
	return out
}

// secret is a TLS Secret for hosts.
func secret(t *testing.T, name, version string, hosts ...string) *corev1.Secret {
	t.Helper()
	c := certificatetest.SelfSigned(t, hosts...)
	key, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, ResourceVersion: version}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{
			corev1.TLSCertKey:       pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]}),
			corev1.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
		},
	}
}

// shows returns the first name in the certificate for the server name host.
func (w *world) shows(host string) string {
	w.t.Helper()
	synctest.Wait()
	c, err := w.certs.Get(&tls.ClientHelloInfo{ServerName: host})
	if err != nil {
		w.t.Fatal(err)
	}
	if c == nil {
		return "nothing"
	}
	return c.Leaf.Subject.CommonName
}
