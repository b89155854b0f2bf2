package webhook

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/lastcall-dev/lastcall/internal/must"
)

// apiServer answers the few requests that the webhook makes, and keeps the patches.
type apiServer struct {
	mu       sync.Mutex
	secret   map[string]any
	patches  []string
	requests map[string]int
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.requests[r.Method+" "+r.URL.Path]++
	w.Header().Set("Content-Type", "application/json")
	body, _ := io.ReadAll(r.Body)
	say := func(code int, object any) {
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(object)
	}
	status := func(code int, reason string) {
		say(code, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code})
	}
	const configurations = "/apis/admissionregistration.k8s.io/v1/"
	switch path := r.URL.Path; {
	case path == "/api/v1/namespaces/shop":
		say(http.StatusOK, map[string]any{"kind": "Namespace", "apiVersion": "v1", "metadata": map[string]any{"name": "shop", "labels": map[string]string{"a": "b"}, "annotations": map[string]string{"linkerd.io/inject": "enabled", "x": "y"}}})
	case strings.HasPrefix(path, "/api/v1/namespaces/system/secrets"):
		var sent map[string]any
		_ = json.Unmarshal(body, &sent)
		switch {
		case r.Method == http.MethodGet && a.secret == nil:
			status(http.StatusNotFound, "NotFound")
		case r.Method == http.MethodGet:
			say(http.StatusOK, a.secret)
		case r.Method == http.MethodPost && a.secret != nil:
			status(http.StatusConflict, "AlreadyExists")
		case r.Method == http.MethodPut && sent["metadata"].(map[string]any)["resourceVersion"] != a.secret["metadata"].(map[string]any)["resourceVersion"]:
			status(http.StatusConflict, "Conflict")
		default:
			a.secret = sent
			a.secret["metadata"].(map[string]any)["resourceVersion"] = "7"
			say(http.StatusOK, a.secret)
		}
	case r.Method == http.MethodGet && path == configurations+"mutatingwebhookconfigurations/hook":
		say(http.StatusOK, map[string]any{"kind": "MutatingWebhookConfiguration", "apiVersion": "admissionregistration.k8s.io/v1", "metadata": map[string]any{"name": "hook"},
			"webhooks": []any{
				map[string]any{"name": "first", "clientConfig": map[string]any{"caBundle": "b2xk"}},
				map[string]any{"name": "second", "clientConfig": map[string]any{"caBundle": "bmV3"}}, // "new"
			}})
	case r.Method == http.MethodPatch:
		a.patches = append(a.patches, r.Header.Get("Content-Type")+" "+string(body))
		say(http.StatusOK, map[string]any{"kind": "MutatingWebhookConfiguration", "apiVersion": "admissionregistration.k8s.io/v1"})
	default:
		status(http.StatusNotFound, "NotFound")
	}
}

func TestKubernetes(t *testing.T) {
	api := &apiServer{requests: map[string]int{}}
	server := httptest.NewServer(api)
	defer server.Close()
	k, err := NewKubernetes(&rest.Config{Host: server.URL, Transport: &http.Transport{DisableKeepAlives: true}}, "system", "hook")
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	if data, version, err := k.Secret(ctx); err != nil || data != nil || version != "" {
		t.Fatalf("%v %q %v", data, version, err)
	}
	must.Do(t, k.PutSecret(ctx, map[string][]byte{"ca.crt": []byte("x")}, ""))
	if err := k.PutSecret(ctx, nil, ""); !errors.Is(err, ErrConflict) {
		t.Errorf("created twice: %v", err)
	}
	if err := k.PutSecret(ctx, nil, "6"); !errors.Is(err, ErrConflict) {
		t.Errorf("updated from an old version: %v", err)
	}
	if data, version, err := k.Secret(ctx); err != nil || string(data["ca.crt"]) != "x" || version != "7" {
		t.Errorf("%v %q %v", data, version, err)
	}
	must.Do(t, k.Trust(ctx, []byte("new")))
	want := `application/json-patch+json [{"op":"test","path":"/webhooks/0/name","value":"first"},{"op":"add","path":"/webhooks/0/clientConfig/caBundle","value":"bmV3"}]`
	if len(api.patches) != 1 || api.patches[0] != want {
		t.Errorf("patches %q, want %q", api.patches, want)
	}
	for range 3 {
		if ns, err := k.Namespace(ctx, "shop"); err != nil || ns.Labels["a"] != "b" || len(ns.Annotations) != 1 || ns.Annotations["linkerd.io/inject"] != "enabled" {
			t.Errorf("%+v %v", ns, err)
		}
	}
	if n := api.requests["GET /api/v1/namespaces/shop"]; n != 1 {
		t.Errorf("a namespace was read %d times", n)
	}
	if _, err := k.Namespace(ctx, "nowhere"); err == nil {
		t.Error("a namespace that is not there has labels")
	}
}
