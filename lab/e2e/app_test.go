//go:build e2e

package e2e

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// app is a Deployment and its Service.
type app struct {
	name        string
	image       string            // empty: the built-in httpbin, which ends at once at SIGTERM
	args        []string          // of the built-in one; nil: --on-term exit
	replicas    int               // 0 is 1
	grace       int               // 0 is 30
	annotations map[string]string // of the pods
	probe       string            // of readiness; empty: GET /get
	more        string            // of the container, indented by 8
}

const builtIn = "local/rehearse"

func (a app) manifest() string {
	image, args := a.image, a.args
	if image == "" {
		image = builtIn + ":" + *tag
		if args == nil {
			args = []string{"httpbin", "--listen", ":8080", "--max-delay", "600s", "--on-term", "exit"}
		}
	}
	var annotations strings.Builder
	for name, value := range a.annotations {
		fmt.Fprintf(&annotations, "\n        %s: %q", name, value)
	}
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  replicas: %[2]d
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata:
      labels: {app: %[1]s}
      annotations:%[3]s
    spec:
      terminationGracePeriodSeconds: %[4]d
      automountServiceAccountToken: false
      dnsPolicy: Default
      containers:
      - name: app
        image: %[5]s
        imagePullPolicy: Never
        args: [%[6]s]
        ports: [{containerPort: 8080, name: http}]
        readinessProbe: {%[8]s, periodSeconds: 1}
%[7]s
---
apiVersion: v1
kind: Service
metadata: {name: %[1]s}
spec:
  selector: {app: %[1]s}
  ports: [{name: http, port: 80, targetPort: http}]
`, a.name, max(1, a.replicas), annotations.String(), cmp.Or(a.grace, 30), image, quoted(args), a.more, cmp.Or(a.probe, "httpGet: {path: /get, port: http}"))
}

func quoted(args []string) string {
	out := make([]string, len(args))
	for i, a := range args {
		out[i] = fmt.Sprintf("%q", a)
	}
	return strings.Join(out, ", ")
}

// serves waits until an app answers at a gateway or a Service.
func (n *namespace) serves(url string) {
	n.T.Helper()
	n.Until("answered at "+url, func() error {
		// A SYN that came before kube-proxy's rules is lost, and so are its repetitions.
		ctx, cancel := context.WithTimeout(n.T.Context(), 2*time.Second)
		defer cancel()
		code, _, err := get(ctx, url+"/get")
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("%d", code)
		}
		return err
	})
}

// get sends one request on its own connection, and returns its duration.
func get(ctx context.Context, url string) (code int, took time.Duration, err error) {
	began := time.Now()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, 0, err
	}
	c := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := c.Do(request)
	if err != nil {
		return 0, time.Since(began), err
	}
	defer func() { _ = response.Body.Close() }()
	return response.StatusCode, time.Since(began), nil
}
