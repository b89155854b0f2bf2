package advise_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/course"
	"github.com/lastcall-dev/lastcall/kube/advise"
)

// TestQuery: buckets of Prometheus, of which one is beyond all bounds.
func TestQuery(t *testing.T) {
	answers := map[string]string{
		"tail_seconds":     `{"metric":{"le":"0.5"},"value":[1,"30.2"]},{"metric":{"le":"2"},"value":[1,"40"]},{"metric":{"le":"+Inf"},"value":[1,"41"]}`,
		"lateness_seconds": `{"metric":{"le":"1"},"value":[1,"3"]},{"metric":{"le":"3"},"value":[1,"5"]},{"metric":{"le":"5"},"value":[1,"5"]},{"metric":{"le":"+Inf"},"value":[1,"5"]}`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		result := ""
		for name, text := range answers {
			if query := r.FormValue("query"); strings.Contains(query, name+"_bucket{workload=\"deployment/web\", namespace=\"shop\"}[604800s]") {
				result = text
			}
		}
		_, _ = fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[%s]}}`, result)
	}))
	defer server.Close()
	base, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	e, err := advise.Query(t.Context(), server.Client(), base, 7*24*time.Hour, "shop", "deployment/web")
	if err != nil {
		t.Fatal(err)
	}
	if e.Tails.Quantile(0.5) != sec/2 || e.Tails.Longest() != 2*sec || e.Tails.Count() != 41 || e.Propagation != 3*sec {
		t.Errorf("%v, %v, %d, %v", e.Tails.Quantile(0.5), e.Tails.Longest(), e.Tails.Count(), e.Propagation)
	}
	if len(e.Doubts) != 1 || !strings.Contains(e.Doubts[0], "1 terminations had their time until no request was in flight after more than 2s") {
		t.Errorf("%q", e.Doubts)
	}
	if text := advise.Confidence(advise.Options{Evidence: e}); !strings.HasPrefix(text, "medium: 41 terminations of deployment/web") {
		t.Error(text)
	}
	if _, err := advise.Query(t.Context(), server.Client(), base, time.Hour, "shop", "deployment/api"); err == nil || !strings.Contains(err.Error(), "must be kind/name of a workload") {
		t.Errorf("got %v", err)
	}
}

// TestAbsurd: times that no rehearsal has.
func TestAbsurd(t *testing.T) {
	const file = `{"$schema":"/rehearsal-service-v1.json","propagation_ms":[0,%s],"requests":[{"took_ms":1}],"rows":[{"runs":[{"sendings":[{"from_ms":%s,"to_ms":2}]}]}]}`
	for _, numbers := range [][2]string{{"1000000000000000", "1"}, {"-1", "1"}, {"1", "3"}, {"1", "-9000000000000000000"}} {
		if _, err := advise.ReadRehearsal(strings.NewReader(fmt.Sprintf(file, numbers[0], numbers[1]))); err == nil {
			t.Errorf("%s: no error", numbers)
		}
	}
}

// TestReactions: what a rehearsal shows of the app's reaction to its stop signal.
func TestReactions(t *testing.T) {
	const inFlight, after = `{"from_ms":900,"to_ms":2000%s}`, `{"from_ms":1500,"to_ms":1600%s}`
	const cut = `,"lost_by":"no response"`
	for _, tt := range []struct {
		name, sendings, endedBy string
		want                    course.Reaction
	}{
		{"cut in flight", fmt.Sprintf(inFlight, cut), "SIGTERM", course.Exits},
		{"answered in flight", fmt.Sprintf(inFlight, "") + "," + fmt.Sprintf(after, `,"lost_by":"refused"`), "exit 0", course.Finishes},
		{"accepts", fmt.Sprintf(inFlight, "") + "," + fmt.Sprintf(after, ""), "exit 0", course.ServesOn},
		{"accepts until SIGKILL", fmt.Sprintf(after, ""), "SIGKILL", course.Ignores},
		{"none in flight", `{"from_ms":100,"to_ms":200}`, "SIGTERM", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e, err := advise.ReadRehearsal(strings.NewReader(fmt.Sprintf(`{"$schema":"https://lastcall.dev/schema/rehearsal-service-v1.json","requests":[{"took_ms":1100}],
				"rows":[{"runs":[{"sigterm_ms":1000,"ended_by":%q,"sendings":[%s]}]}]}`, tt.endedBy, tt.sendings)))
			if err != nil {
				t.Fatal(err)
			}
			if e.App != tt.want {
				t.Errorf("%q, want %q", e.App, tt.want)
			}
		})
	}
}
