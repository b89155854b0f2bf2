//go:build e2e

package mesh

import (
	"cmp"
	"fmt"
	"maps"
	"strings"
)

// form is how a pod of the mesh ends.
type form struct {
	name        string
	labels      map[string]string // of the namespace
	annotations map[string]string // of the pod
	whole       bool              // nothing may be cut, and an idle client may not hold the pod
}

const nativeSidecar, proxyConfig = "sidecar.istio.io/nativeSidecar", "proxy.istio.io/config"

var (
	istioClassic = form{name: "Istio, classic", labels: byIstio, annotations: map[string]string{nativeSidecar: "false"}}
	exitOnZero   = form{name: "Istio, EXIT_ON_ZERO", labels: byIstio, annotations: map[string]string{
		nativeSidecar: "false", proxyConfig: "proxyMetadata:\n  EXIT_ON_ZERO_ACTIVE_CONNECTIONS: 'true'\n",
	}}
	istioNative = form{name: "Istio, native", labels: byIstio, annotations: map[string]string{nativeSidecar: "true"}}
	classic     = form{name: "lastcall, classic", labels: byBoth, annotations: map[string]string{nativeSidecar: "false"}, whole: true}
	native      = form{name: "lastcall, native", labels: byBoth, annotations: map[string]string{nativeSidecar: "true"}, whole: true}

	forms = []form{istioClassic, exitOnZero, istioNative, classic, native}
)

// with is the same form with more annotations.
func (f form) with(name string, annotations map[string]string) form {
	all := maps.Clone(f.annotations)
	maps.Copy(all, annotations)
	f.name, f.annotations = f.name+", "+name, all
	return f
}

// template of a pod with the app, which ends at once at SIGTERM.
func (f form) template(grace int) string {
	var annotations strings.Builder
	for name, value := range f.annotations {
		fmt.Fprintf(&annotations, "%s: %q, ", name, value)
	}
	return fmt.Sprintf(`metadata:
  labels: {app: web}
  annotations: {%s}
spec:
  terminationGracePeriodSeconds: %d
  dnsPolicy: Default
  containers:
  - name: app
    image: local/talk:%s
    imagePullPolicy: Never
    args: [app]
    ports: [{containerPort: 8080, name: http}, {containerPort: 8082, name: http2}, {containerPort: 9090, name: grpc}]
    readinessProbe: {httpGet: {path: /get, port: http}, periodSeconds: 1}
`, annotations.String(), cmp.Or(grace, 30), *tag)
}

const service = `---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{name: http, port: 8080}, {name: http2, port: 8082}, {name: grpc, port: 9090}]
`

// strict requires mTLS of all clients of the namespace.
const strict = `---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default}
spec: {mtls: {mode: STRICT}}
`

// inside starts a pod in the mesh from which clients ask.
func (n *namespace) inside() {
	n.T.Helper()
	n.Apply(fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: client, labels: {lastcall.dev/inject: "false"}}
spec:
  terminationGracePeriodSeconds: 1
  dnsPolicy: Default
  containers: [{name: client, image: "local/talk:%s", imagePullPolicy: Never, args: [rest]}]
`, *tag))
	n.Ready("client")
}

func indent(text, by string) string {
	return by + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n"+by) + "\n"
}

// deployment of a form.
func (f form) deployment(name string, replicas int) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: %s}
spec:
  replicas: %d
  selector: {matchLabels: {app: web}}
  template:
`, name, replicas) + indent(f.template(0), "    ")
}
