package inject

import (
	"bytes"
	"strings"
	"testing"
)

// typical is a Deployment as people write them.
const typical = `---
# The shop's front.
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  labels: {app.kubernetes.io/name: web}
spec:
  replicas: 3
  selector:
    matchLabels:
      app.kubernetes.io/name: web
  template:
    metadata:
      labels:
        app.kubernetes.io/name: web
    spec:
      terminationGracePeriodSeconds: 60 # requests take up to 20 s
      containers:
        - name: web
          image: registry.example.com/shop/web:1.2.0
          command: ["/web", "--port=8080"]
          env:
            - name: DATABASE
              value: db.example.com
            - name: POD
              valueFrom:
                fieldRef:
                  fieldPath: metadata.name
          ports:
            - name: http
              containerPort: 8080
          lifecycle:
            preStop:
              exec:
                command: ["sh", "-c", "sleep 5 && nginx -s quit"]
          readinessProbe:
            httpGet:
              path: /ready
              port: http
            periodSeconds: 5
          livenessProbe:
            httpGet:
              path: /live
              port: http
          resources:
            requests: {cpu: 100m, memory: 64Mi}
            limits:
              memory: 256Mi
          volumeMounts:
            - name: data
              mountPath: /data
      volumes:
        - name: data
          emptyDir: {}
`

// BenchmarkManifest injects into a file of 1,000 Deployments.
func BenchmarkManifest(b *testing.B) {
	const n = 1000
	text := []byte(strings.Repeat(typical, n))
	for b.Loop() {
		out, _, err := Manifest(text, offline)
		if err != nil || bytes.Count(out, []byte("lastcall.dev/status")) != n {
			b.Fatalf("%d statuses, %v", bytes.Count(out, []byte("lastcall.dev/status")), err)
		}
	}
	b.ReportMetric(b.Elapsed().Seconds()*1000/float64(b.N)/n, "ms/Deployment")
}
