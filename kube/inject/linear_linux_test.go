package inject

import (
	"bytes"
	"strings"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/sidecar/programtest"
	"github.com/lastcall-dev/lastcall/kube/manifest"
)

const deployment = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {template: {spec: {containers: [{name: web, image: web:1}]}}}}\n"

// manifestOf has n Deployments, as documents or as the items of a List.
func manifestOf(n int, isList bool) []byte {
	if isList {
		return []byte("apiVersion: v1\nkind: List\nitems:\n" + strings.Repeat("- "+deployment, n))
	}
	return []byte(strings.Repeat("---\n"+deployment, n))
}

// TestManifestIsLinear: ten times the objects take about ten times the processor time, not a hundred times. Both are
// measured in one process, and its own time does not depend on other processes.
func TestManifestIsLinear(t *testing.T) {
	for form, isList := range map[string]bool{"documents": false, "a List": true} {
		t.Run(form, func(t *testing.T) {
			programtest.Linear(t, 40, func(n int) func() {
				text, o := manifestOf(n, isList), testOptions()
				return func() {
					out, done, err := Manifest(text, func(*manifest.Workload) Options { return o })
					if err != nil || len(done) != n || bytes.Count(out, []byte("lastcall.dev/status")) != n {
						t.Fatalf("%d of %d workloads, %v", len(done), n, err)
					}
				}
			})
		})
	}
}
