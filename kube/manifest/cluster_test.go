package manifest_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/lastcall-dev/lastcall/kube/manifest"
)

// TestForbidden: with rights in one namespace alone, a user may not list namespaces.
func TestForbidden(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	client := fake.NewSimpleDynamicClient(scheme, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop"}})
	client.PrependReactor("list", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, "", nil)
	})
	namespaces, services := schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, schema.GroupVersionResource{Version: "v1", Resource: "services"}
	f, forbidden, err := manifest.FromCluster(t.Context(), client, "shop", []schema.GroupVersionResource{namespaces, services})
	if err != nil || len(f.Objects) != 1 || len(forbidden) != 1 || !strings.HasPrefix(forbidden[0].Error(), "list namespaces: ") {
		t.Errorf("%v, %v, %v", f, forbidden, err)
	}
	if _, _, err := manifest.FromCluster(t.Context(), client, "shop", []schema.GroupVersionResource{namespaces}); err == nil {
		t.Error("nothing may be listed: no error")
	}
}
