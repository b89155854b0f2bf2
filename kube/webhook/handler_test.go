package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode/utf8"

	admission "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/kube/inject"
)

const podJSON = `{"apiVersion":"v1","kind":"Pod","metadata":{"generateName":"web-","labels":{"app":"web"}},
	"spec":{"containers":[{"name":"web","image":"web:1","ports":[{"containerPort":80}],"fromTheFuture":true}]}}`

func reviewOf(object, operation string) string {
	return `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u-1","namespace":"shop","operation":"` + operation + `","object":` + object + `}}`
}

func post(h http.Handler, path, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json; charset=utf-8")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func responseOf(t *testing.T, w *httptest.ResponseRecorder) *admission.AdmissionResponse {
	t.Helper()
	var review admission.AdmissionReview
	if err := json.Unmarshal(w.Body.Bytes(), &review); err != nil || w.Code != http.StatusOK {
		t.Fatalf("%d %s (%v)", w.Code, w.Body, err)
	}
	if review.APIVersion != "admission.k8s.io/v1" || review.Kind != "AdmissionReview" || review.Response == nil || review.Response.UID != "u-1" {
		t.Fatalf("no proper review: %s", w.Body)
	}
	return review.Response
}

func TestInject(t *testing.T) {
	h := testHandler(t)
	r := responseOf(t, post(h, PathInjectNamespace, reviewOf(podJSON, "CREATE")))
	if !r.Allowed || r.PatchType == nil || *r.PatchType != admission.PatchTypeJSONPatch || len(r.Warnings) != 0 {
		t.Fatalf("%+v", r)
	}
	var operations []inject.Operation
	must.Do(t, json.Unmarshal(r.Patch, &operations))
	var paths []string
	for _, op := range operations {
		if op.Op != "add" {
			t.Errorf("%s %s: nothing of this pod is to be changed or removed", op.Op, op.Path)
		}
		paths = append(paths, op.Path)
	}
	want := "/metadata/annotations /metadata/labels/lastcall.dev~1injected /spec/containers/0/env /spec/containers/0/lifecycle /spec/initContainers /spec/volumes"
	if got := strings.Join(paths, " "); got != want {
		t.Errorf("the patch is about %s, want %s", got, want)
	}
	other := responseOf(t, post(h, PathInjectNamespace, reviewOf(podJSON, "CREATE")))
	if bytes.Equal(other.Patch, r.Patch) {
		t.Error("two pods have the same token")
	}
}

func TestAdmittedAsItIs(t *testing.T) {
	h := testHandler(t)
	for _, c := range []struct{ name, path, object, operation, warning string }{
		{"no label", PathInjectPod, podJSON, "CREATE", ""},
		{"an update", PathInjectNamespace, podJSON, "UPDATE", ""},
		{"something else", PathInjectNamespace, `{"apiVersion":"v1","kind":"Secret"}`, "CREATE", "lastcall: not injected: the object is not a Pod"},
		{"a pod that cannot be read", PathInjectNamespace, `{"apiVersion":"v1","kind":"Pod","spec":[]}`, "CREATE", "lastcall: not injected: "},
		{"no object", PathInjectNamespace, `null`, "CREATE", "lastcall: not injected: "},
		{"nothing to find", PathLint, podJSON, "CREATE", ""},
		{"lint cannot read it", PathLint, `{"apiVersion":"v1","kind":"Pod","spec":[]}`, "CREATE", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := responseOf(t, post(h, c.path, reviewOf(c.object, c.operation)))
			if !r.Allowed || r.Patch != nil || (len(r.Warnings) == 1) != (c.warning != "") || c.warning != "" && !strings.HasPrefix(r.Warnings[0], c.warning) {
				t.Errorf("%+v", r)
			}
		})
	}
}

func TestLeftAloneIsReported(t *testing.T) {
	r := responseOf(t, post(testHandler(t), PathInjectNamespace, reviewOf(strings.Replace(podJSON, `"spec":{`, `"spec":{"hostNetwork":true,`, 1), "CREATE")))
	if len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "hostNetwork") || !strings.Contains(string(r.Patch), "left alone: hostNetwork") {
		t.Errorf("%+v", r)
	}
}

func TestLintWarnsAndDeniesOnlyWhenRequested(t *testing.T) {
	const deployment = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"},"spec":{"template":{"spec":{"containers":[
		{"name":"web","image":"web","lifecycle":{"preStop":{"exec":{"command":["sleep","60"]}}}}]}}}}`
	h := testHandler(t)
	r := responseOf(t, post(h, PathLint, reviewOf(deployment, "UPDATE")))
	if !r.Allowed || len(r.Warnings) != 1 || !strings.HasPrefix(r.Warnings[0], "lastcall: LC001 spec.containers[web].lifecycle.preStop: sleeps for 1m0s") {
		t.Errorf("%+v", r)
	}
	h.Deny = true
	r = responseOf(t, post(h, PathLint, reviewOf(deployment, "UPDATE")))
	if r.Allowed || r.Result.Code != http.StatusUnprocessableEntity || !strings.Contains(r.Result.Message, "LC001") {
		t.Errorf("%+v", r)
	}
}

func TestRefused(t *testing.T) {
	h := testHandler(t)
	review := reviewOf(podJSON, "CREATE")
	for _, c := range []struct {
		name, body string
		code       int
		says       string
	}{
		{"no JSON", "{", http.StatusBadRequest, "not an AdmissionReview"},
		{"nothing", "", http.StatusBadRequest, "not an AdmissionReview"},
		{"v1beta1", strings.Replace(review, "admission.k8s.io/v1", "admission.k8s.io/v1beta1", 1), http.StatusBadRequest, "must be admission.k8s.io/v1 AdmissionReview"},
		{"another kind", strings.Replace(review, "AdmissionReview", "Pod", 1), http.StatusBadRequest, "must be"},
		{"no request", `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`, http.StatusBadRequest, "no request"},
		{"no uid", strings.Replace(review, "u-1", "", 1), http.StatusBadRequest, "without a uid"},
		{"too much", strings.Repeat(" ", maxObject+maxAround+1), http.StatusRequestEntityTooLarge, "more than 2162688 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if w := post(h, PathInjectPod, c.body); w.Code != c.code || !strings.Contains(w.Body.String(), c.says) {
				t.Errorf("%d %s, want %d %s", w.Code, w.Body, c.code, c.says)
			}
		})
	}
	for method, want := range map[string]int{http.MethodGet: http.StatusMethodNotAllowed, http.MethodPost: http.StatusUnsupportedMediaType} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, PathLint, strings.NewReader(review))) // without a Content-Type
		if w.Code != want || (w.Header().Get("Allow") == http.MethodPost) != (method == http.MethodGet) {
			t.Errorf("%s: %d", method, w.Code)
		}
	}
}

func TestAFaultIsOnePodsOnly(t *testing.T) {
	h := testHandler(t)
	h.Namespace = func(context.Context, string) (inject.Namespace, error) { panic("a fault") }
	r := responseOf(t, post(h, PathInjectNamespace, reviewOf(podJSON, "CREATE")))
	if !r.Allowed || r.Patch != nil || len(r.Warnings) != 1 {
		t.Errorf("%+v", r)
	}
	w := httptest.NewRecorder()
	h.metrics.handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, want := range []string{"lastcall_webhook_faults_total 1", `lastcall_webhook_duration_seconds_count{endpoint="inject",outcome="warned"} 1`} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("no %s in the metrics", want)
		}
	}
}

func TestWarningsAreBounded(t *testing.T) {
	long := strings.Repeat("ä", 300)
	var many []string
	for range 40 {
		many = append(many, long+"\n")
	}
	sum := 0
	for _, text := range bounded(many) {
		sum += len(text)
		if len(text) > maxWarning || !utf8.ValidString(text) || strings.Contains(text, "\n") {
			t.Errorf("%d bytes: %q", len(text), text)
		}
	}
	if sum > maxWarnings || sum < maxWarnings-maxWarning {
		t.Errorf("%d bytes of warnings", sum)
	}
}

// FuzzReview: whatever is posted, there is a proper answer, and never a fault.
func FuzzReview(f *testing.F) {
	f.Add(PathInjectNamespace, reviewOf(podJSON, "CREATE"))
	f.Add(PathLint, reviewOf(strings.Replace(podJSON, `"image":"web:1"`, `"image":"web:1","lifecycle":{"preStop":{"exec":{"command":["sh","-c","while sleep 1; do netstat; done"]}}}`, 1), "CREATE"))
	f.Add(PathInjectPod, reviewOf(`{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{"lastcall.dev/inject":"true"},"annotations":{"lastcall.dev/proxy":"sockets","proxy.istio.io/config":"a: b"}},"spec":{"containers":[{"name":"istio-proxy"}]}}`, "CREATE"))
	h := testHandler(f)
	f.Fuzz(func(t *testing.T, path, body string) {
		switch path {
		case PathInjectNamespace, PathInjectPod, PathLint:
		default:
			return
		}
		w := post(h, path, body)
		if w.Code != http.StatusOK {
			if w.Code/100 != 4 || w.Body.Len() == 0 {
				t.Fatalf("%d %q", w.Code, w.Body)
			}
			return
		}
		var review admission.AdmissionReview
		if err := json.Unmarshal(w.Body.Bytes(), &review); err != nil || !review.Response.Allowed {
			t.Fatalf("%s (%v)", w.Body, err)
		}
		for _, text := range review.Response.Warnings {
			if strings.Contains(text, "an internal error") {
				t.Fatalf("%s panicked at %q", path, body)
			}
		}
	})
}

// What earlier terminations have shown of a workload is used for its next pods.
func TestLearned(t *testing.T) {
	h := testHandler(t)
	h.Learned = func(namespace string, pod *metav1.ObjectMeta) inject.Learned {
		if namespace == "" || pod == nil {
			t.Errorf("asked about %q, %v", namespace, pod)
		}
		return inject.Learned{App: drain.AppFinishes, Why: "the end of pod web-1 has shown it"}
	}
	r := responseOf(t, post(h, PathInjectNamespace, reviewOf(podJSON, "CREATE")))
	if !strings.Contains(string(r.Patch), `"LASTCALL_APP"`) || !strings.Contains(strings.Join(r.Warnings, "\n"), "the end of pod web-1 has shown it") {
		t.Errorf("patch %s, warnings %q", r.Patch, r.Warnings)
	}
}
