//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/internal/sidecar/certificate/certificatetest"
)

const ingressGateway = "lastcall-gateway"

// TestGateway has the chart's gateway serve an Ingress with TLS, and replaces first the app's pods and then the gateway's
// own under load: nothing is lost.
func TestGateway(t *testing.T) {
	t.Parallel()
	const host = "shop.example"
	n := newNamespace(t, nil)
	certificate := certificatetest.SelfSigned(t, host)
	cert, key := certificatetest.Encode(t, certificate)
	_, err := client.CoreV1().Secrets(n.Name).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "shop"}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{corev1.TLSCertKey: cert, corev1.TLSPrivateKeyKey: key},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n.Apply(app{name: "web", replicas: 2}.manifest() + fmt.Sprintf(`---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: shop}
spec:
  ingressClassName: lastcall
  tls: [{hosts: [%[1]s], secretName: shop}]
  rules:
  - host: %[1]s
    http:
      paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {name: http}}}}]
  - http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web-h2, port: {number: 80}}}}]}
---
apiVersion: v1
kind: Service
metadata: {name: web-h2}
spec:
  selector: {app: web}
  ports: [{name: web, port: 80, targetPort: http, appProtocol: kubernetes.io/h2c}]
`, host))
	n.Available("web")

	trusted := x509.NewCertPool()
	trusted.AddCert(certificate.Leaf)
	c := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		MaxIdleConnsPerHost: 1000, TLSClientConfig: &tls.Config{RootCAs: trusted},
		DialContext: balance(t, system, ingressGateway, "https"),
	}}
	n.Until("was served by the gateway", func() error {
		if why := ask(c, "https://"+host+"/delay/0"); why != "" {
			return errors.New(why)
		}
		return nil
	})

	// The same pods by HTTP/2 without TLS, from the client to the app.
	h2 := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		Protocols: new(http.Protocols), DialContext: balance(t, system, ingressGateway, "http"),
	}}
	h2.Transport.(*http.Transport).Protocols.SetUnencryptedHTTP2(true)
	n.Until("was served by HTTP/2", func() error {
		if why := ask(h2, "http://any.example/delay/0"); why != "" {
			return errors.New(why)
		}
		return nil
	})

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	loaded := make(chan *result, 2)
	go func() { loaded <- loadBy(ctx, c, "https://"+host, 50) }()
	go func() { loaded <- loadBy(ctx, h2, "http://any.example", 50) }()
	n.Kubectl("rollout", "restart", "deployment", "web")
	n.Available("web")
	s := existing(t, system)
	old, err := client.CoreV1().Pods(system).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=gateway"})
	if err != nil {
		t.Fatal(err)
	}
	logs := exec.CommandContext(ctx, "kubectl", "--namespace", system, "logs", "--follow", old.Items[0].Name)
	var output strings.Builder
	logs.Stdout = &output
	if err := logs.Start(); err != nil {
		t.Fatal(err)
	}
	s.Kubectl("rollout", "restart", "deployment", ingressGateway)
	s.Available(ingressGateway)
	for _, p := range old.Items {
		s.gone(p)
	}
	_ = logs.Wait() // it ends with the container
	stop()
	for range 2 {
		if r := <-loaded; r.failed() > 0 || r.requests == 0 {
			t.Errorf("%v; want none\na gateway that was replaced:\n%s", r, output.String())
		} else {
			t.Log(r)
		}
	}
	if !strings.Contains(output.String(), "cluster="+n.Name+"/web-h2/web added=") || !strings.Contains(output.String(), "protocol=h2c") {
		t.Errorf("the gateway does not say that it speaks HTTP/2 to the app:\n%s", output.String())
	}
	if !strings.Contains(output.String(), "verdict=clean") {
		t.Errorf("the gateway that was replaced did not end clean:\n%s", output.String())
	}
}

// balance dials the ready endpoints of a Service in turn, as a load balancer does that follows the API.
func balance(t *testing.T, namespace, service, port string) func(context.Context, string, string) (net.Conn, error) {
	var turn atomic.Int64
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		slices, err := client.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service})
		if err != nil {
			return nil, err
		}
		var all []string
		for _, s := range slices.Items {
			for _, p := range s.Ports {
				for _, e := range s.Endpoints {
					if *p.Name == port && e.Conditions.Ready != nil && *e.Conditions.Ready {
						all = append(all, net.JoinHostPort(e.Addresses[0], fmt.Sprint(*p.Port)))
					}
				}
			}
		}
		if len(all) == 0 {
			return nil, errors.New("the Service has no endpoint that is ready")
		}
		return (&net.Dialer{}).DialContext(ctx, network, all[int(turn.Add(1))%len(all)])
	}
}

// TestGatewayGuide applies the manifests of docs/gateway.md as written, but for the image's name: the gateway's pods are
// admitted under the restricted pod security standard, become ready and serve the Ingress.
func TestGatewayGuide(t *testing.T) {
	t.Parallel()
	const guide, host, edge = "../../docs/gateway.md", "httpbin.example.com", "edge"
	n := newNamespace(t, nil)
	t.Cleanup(func() {
		for _, kind := range []string{"clusterrole", "clusterrolebinding"} {
			n.Kubectl("delete", kind, "edge-gateway", "--ignore-not-found")
		}
		n.Kubectl("delete", "pod", "--namespace", edge, "--all", "--force", "--grace-period=0")
		n.Kubectl("delete", "namespace", edge, "--ignore-not-found", "--wait=false")
	})
	certificate := certificatetest.SelfSigned(t, host)
	cert, key := certificatetest.Encode(t, certificate)
	_, err := client.CoreV1().Secrets(n.Name).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "httpbin-tls"}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{corev1.TLSCertKey: cert, corev1.TLSPrivateKeyKey: key},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n.Apply(app{name: "web"}.manifest() + `---
apiVersion: v1
kind: Service
metadata: {name: httpbin}
spec:
  selector: {app: web}
  ports: [{name: http, port: 8000, targetPort: http}]
`)
	n.Apply(yamlOf(t, guide, "An Ingress"))
	manifest := strings.ReplaceAll(yamlOf(t, guide, "Install"), "registry.example.com/team/lastcall-gateway:VERSION", "localhost/lastcall-gateway:"+*tag)
	if out, err := n.TryKubectl(manifest, "apply", "--namespace", "", "-f", "-"); err != nil || strings.Contains(out, "would violate PodSecurity") {
		t.Fatalf("%v\n%s", err, out)
	}
	n.Available("web")
	g := existing(t, edge)
	g.Available("gateway")

	trusted := x509.NewCertPool()
	trusted.AddCert(certificate.Leaf)
	c := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: trusted}, DialContext: balance(t, edge, "gateway", "https"),
	}}
	n.Until("was served by the gateway", func() error {
		if why := ask(c, "https://"+host+"/delay/0"); why != "" {
			return errors.New(why)
		}
		return nil
	})
}

// yamlOf is the YAML in a document's section.
func yamlOf(t *testing.T, file, title string) string {
	t.Helper()
	_, section, _ := strings.Cut(document(t, file), "\n## "+title+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	_, block, found := strings.Cut(section, "```yaml\n")
	block, _, ended := strings.Cut(block, "```\n")
	if !found || !ended {
		t.Fatalf("%s has no YAML in %q", file, title)
	}
	return block
}
