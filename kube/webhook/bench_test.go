package webhook

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/lastcall-dev/lastcall/kube/podgen"
)

// BenchmarkInject answers reviews of different pods, without the network.
func BenchmarkInject(b *testing.B) {
	h := testHandler(b)
	var reviews []string
	for _, pod := range podgen.Pods(1, 200) {
		text, err := json.Marshal(pod)
		if err != nil {
			b.Fatal(err)
		}
		reviews = append(reviews, reviewOf(string(text), "CREATE"))
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		r := httptest.NewRequest(http.MethodPost, PathInjectNamespace, strings.NewReader(reviews[i%len(reviews)]))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			b.Fatal(w.Body)
		}
	}
}
