package inject

import (
	"bytes"
	"strings"
	"syscall"
	"testing"
	"time"

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
			of := func(n int) time.Duration {
				text, o := manifestOf(n, isList), testOptions()
				before := processorTime(t)
				out, done, err := Manifest(text, func(*manifest.Workload) Options { return o })
				took := processorTime(t) - before
				if err != nil || len(done) != n || bytes.Count(out, []byte("lastcall.dev/status")) != n {
					t.Fatalf("%d of %d workloads, %v", len(done), n, err)
				}
				return took
			}
			of(20) // for what happens once
			small, large := of(40), of(400)
			t.Logf("40 objects: %v, 400: %v", small, large)
			if large > 30*small {
				t.Errorf("ten times the objects take %.0f times as long", large.Seconds()/small.Seconds())
			}
		})
	}
}

func processorTime(t *testing.T) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano())
}
