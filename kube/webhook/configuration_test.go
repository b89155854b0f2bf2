package webhook

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// asked are the paths that the API server calls for a pod, separated by a space.
func asked(t *testing.T, r Registration, namespace string, ofNamespace, ofPod string) string {
	t.Helper()
	set := func(value string) labels.Set {
		if value == "" {
			return labels.Set{}
		}
		return labels.Set{"lastcall.dev/inject": value}
	}
	in := set(ofNamespace)
	in["kubernetes.io/metadata.name"] = namespace
	var paths []string
	for _, w := range r.Mutating().Webhooks {
		matches := true
		for selector, on := range map[*metav1.LabelSelector]labels.Set{w.NamespaceSelector: in, w.ObjectSelector: set(ofPod)} {
			s, err := metav1.LabelSelectorAsSelector(selector)
			if err != nil {
				t.Fatal(err)
			}
			matches = matches && s.Matches(on)
		}
		if matches {
			paths = append(paths, *w.ClientConfig.Service.Path)
		}
	}
	return strings.Join(paths, " ")
}

func TestWhoIsAskedAbout(t *testing.T) {
	labelled := Registration{Namespace: "lastcall-system", Service: "s"}
	all := Registration{Namespace: "lastcall-system", Service: "s", AllNamespaces: true, Excluded: []string{"quiet"}}
	for _, c := range []struct {
		name, namespace, ofNamespace, ofPod string
		labelled, all                       string
	}{
		{"no label", "shop", "", "", "", PathInjectNamespace},
		{"the namespace asks", "shop", "true", "", PathInjectNamespace, PathInjectNamespace},
		{"in Istio's word, which is not accepted", "shop", "enabled", "", "", PathInjectNamespace},
		{"the pod asks", "shop", "", "true", PathInjectPod, PathInjectNamespace},
		{"both ask", "shop", "true", "true", PathInjectNamespace, PathInjectNamespace},
		{"the pod objects", "shop", "true", "false", "", ""},
		{"the namespace objects", "shop", "false", "", "", ""},
		{"the namespace objects, the pod asks", "shop", "false", "true", PathInjectPod, PathInjectPod},
		{"the cluster's own", "kube-system", "true", "true", "", ""},
		{"the webhook's own", "lastcall-system", "true", "true", "", ""},
		{"one that is excluded", "quiet", "true", "true", PathInjectNamespace, ""},
	} {
		if got := asked(t, labelled, c.namespace, c.ofNamespace, c.ofPod); got != c.labelled {
			t.Errorf("%s: labelled namespaces: asked %q, want %q", c.name, got, c.labelled)
		}
		if got := asked(t, all, c.namespace, c.ofNamespace, c.ofPod); got != c.all {
			t.Errorf("%s: all namespaces: asked %q, want %q", c.name, got, c.all)
		}
	}
}
