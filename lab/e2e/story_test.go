//go:build e2e

package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/loadtest"
	"github.com/lastcall-dev/lastcall/kube/advice"
	"github.com/lastcall-dev/lastcall/lab/e2e/nodetest"
)

var (
	storyRollouts = flag.Int("story-rollouts", 1, "rollouts of TestStory before and after the label")
	storyFolder   = flag.String("story", "", "`folder` in which TestStory leaves Prometheus' data")
)

const (
	storyReplicas = 3
	storyRate     = 40 // requests/s
	storyWindow   = "10m"
)

// ended are the observer's reports about the namespace's pods.
func (n *namespace) ended() (all []advice.Termination, err error) {
	out, err := exec.Command("kubectl", "--namespace", observerRelease, "logs", "daemonset/lastcall-observer", "--tail", "-1").Output()
	if err != nil {
		return nil, err
	}
	for _, one := range terminationsIn(out) {
		if one.Namespace == n.Name {
			all = append(all, one)
		}
	}
	return all, nil
}

// terminationsIn are those in the lines of an observer, which may have other lines too.
func terminationsIn(lines []byte) (all []advice.Termination) {
	for line := range bytes.Lines(lines) {
		var one advice.Termination
		if json.Unmarshal(line, &one) == nil && one.Workload != "" && one.Verdict != "" {
			all = append(all, one)
		}
	}
	return all
}

// phase is a part of the story: rollouts under load, counted by the clients and by the observer.
type phase struct {
	clients               *loadtest.Load
	terminations, lost    int
	refused               int
	clean                 int // a busy kubelet may probe an app that has exited: that is no other doubt
	verdicts, proxies     map[string]int
	longest, idle, latest float64 // seconds, of all terminations: the longest, the sum, the latest arrival of a client
}

// observe has f make rollouts of web under load, and waits until the observer has reported so many terminations.
func (n *namespace) observe(t *testing.T, want int, f func()) (p phase) {
	t.Helper()
	service, err := client.CoreV1().Services(n.Name).Get(t.Context(), "web", metav1.GetOptions{})
	must.Do(t, err)
	before, err := n.ended()
	must.Do(t, err)
	url := "http://" + service.Spec.ClusterIP
	n.serves(url) // kube-proxy may be later than a rollout
	stop := begin(t.Context(), url, storyRate)
	f()
	var all []advice.Termination
	n.Until("had all terminations reported", func() error {
		if all, err = n.ended(); err != nil || len(all)-len(before) < want {
			return errors.Join(err, fmt.Errorf("%d of %d", len(all)-len(before), want))
		}
		return nil
	})
	p = phase{clients: stop(), verdicts: map[string]int{}, proxies: map[string]int{}}
	for _, one := range all[len(before):] {
		p.terminations++
		p.verdicts[strings.TrimSpace(one.Verdict+" "+one.Doubts())]++
		if one.Verdict == advice.Clean {
			p.clean++
		}
		p.proxies[one.Proxy]++
		p.lost += one.Traffic.Lost.Total()
		p.refused += one.Traffic.Lost.Refused
		p.longest = max(p.longest, one.Seconds)
		p.idle += time.Duration(one.Traffic.Idle).Seconds()
		p.latest = max(p.latest, one.Lateness)
	}
	t.Logf("clients: %v; observer: %d terminations %v of proxies %v lost %d, of which %d were refused; longest %.1f s, idle %.1f s in all, last arrival after %.1f s",
		p.clients, p.terminations, p.verdicts, p.proxies, p.lost, p.refused, p.longest, p.idle, p.latest)
	return p
}

// TestStory is the story of docs/observe.md with a real Prometheus: a bare Deployment loses requests in rollouts, and
// the query of that page names it; with the label it loses none. The dashboard's queries and the chart's alerts show
// it.
func TestStory(t *testing.T) {
	observer(t)
	folder := *storyFolder
	if folder == "" {
		folder = t.TempDir()
	}
	began := time.Now()
	prom := startPrometheus(t, folder, chartAlerts(t))
	n := newNamespace(t, map[string]string{}) // the label will be the pods' own
	n.start(app{name: "web", replicas: storyReplicas})
	restart := func() {
		for range *storyRollouts {
			n.Kubectl("rollout", "restart", "deployment/web")
			n.Available("web")
		}
	}
	bare := n.observe(t, storyReplicas**storyRollouts, restart)
	if bare.lost == 0 || bare.clients.Failed() < bare.lost-bare.refused {
		t.Errorf("bare pods: the observer counted %d lost requests, the clients %v", bare.lost, bare.clients)
	}
	prom.until("reported what the observer did", func() error {
		sums, err := n.sums(prom)
		if got := sums["none"]; err != nil || len(sums) != 1 || !near(got.lost, float64(bare.lost)) || !near(got.terminations, float64(bare.terminations)) {
			return fmt.Errorf("want %d terminations with %d lost requests: %v, %w", bare.terminations, bare.lost, sums, err)
		}
		return nil
	})
	label := n.observe(t, storyReplicas, func() {
		n.Kubectl("patch", "deployment", "web", "--patch", `{"spec": {"template": {"metadata": {"labels": {"lastcall.dev/inject": "true"}}}}}`)
		n.Available("web")
	})
	if label.proxies["none"] != storyReplicas {
		t.Errorf("the rollout with the label ended pods of %v", label.proxies)
	}
	after := n.observe(t, storyReplicas**storyRollouts, restart)
	if after.lost > 0 || after.clients.Failed() > 0 || after.proxies["lastcall"] != after.terminations || after.clean != after.terminations {
		t.Errorf("after the label: the observer counted %d lost requests, the clients %v; verdicts %v, proxies %v", after.lost, after.clients, after.verdicts, after.proxies)
	}
	prom.until("had the last scrape", func() error {
		sums, err := n.sums(prom)
		if got := sums["lastcall"]; err != nil || len(sums) != 2 || got.lost > 0 || !near(got.terminations, float64(after.terminations)) {
			return fmt.Errorf("want %d terminations with lastcall: %v, %w", after.terminations, sums, err)
		}
		return nil
	})
	prom.dashboard(n.Name, began, float64(bare.terminations+label.terminations+after.terminations), float64(bare.lost+label.lost), max(bare.latest, label.latest, after.latest) > 0)
	prom.firing(after.longest)
}

// near reports whether an estimate by increase(), which extrapolates to the end of the range, fits a count.
func near(got, want float64) bool { return got >= want-1 && got <= want*1.1+1 }

// sum has Prometheus' values for the terminations of web behind one proxy.
type sum struct{ terminations, lost float64 }

// sums are those of the namespace, by proxy.
func (n *namespace) sums(p *prometheus) (map[string]sum, error) {
	increase := func(metric string) ([]series, error) {
		return p.query(fmt.Sprintf("sum by (workload, proxy) (increase(%s{namespace=%q, workload=\"deployment/web\"}[%s]))", metric, n.Name, storyWindow))
	}
	ended, err := increase("lastcall_terminations_total")
	lost, lostErr := increase("lastcall_termination_requests_lost_total")
	all := map[string]sum{}
	for _, s := range ended {
		if s.last > 0 { // a pod that runs has counters at 0
			all[string(s.labels["proxy"])] = sum{terminations: s.last}
		}
	}
	for _, s := range lost {
		if one, ok := all[string(s.labels["proxy"])]; ok {
			one.lost = s.last
			all[string(s.labels["proxy"])] = one
		}
	}
	return all, errors.Join(err, lostErr)
}

// chartAlerts are the rules of the chart, in the form of a file of Prometheus.
func chartAlerts(t *testing.T) json.RawMessage {
	t.Helper()
	manifests, err := nodetest.Chart("../..", *tag, observerRelease, "webhook.enabled=false,observer.enabled=true",
		"monitoring.rules.enabled=true,monitoring.rules.longDrain=2s,monitoring.rules.window="+storyWindow)
	must.Do(t, err)
	for _, one := range strings.Split(manifests, "\n---\n") {
		var object struct {
			Kind string
			Spec json.RawMessage
		}
		if err := yaml.Unmarshal([]byte(one), &object); err == nil && object.Kind == "PrometheusRule" {
			return object.Spec
		}
	}
	t.Fatalf("the chart has no PrometheusRule:\n%s", manifests)
	return nil
}

// dashboard runs every query of the dashboard, as Grafana does, and compares the results that follow from the counts.
// Without a late connection its panel is empty: the few from the node's own addresses may be the kubelet's probes.
func (p *prometheus) dashboard(namespace string, began time.Time, terminations, lost float64, isLate bool) {
	p.t.Helper()
	text, err := os.ReadFile(filepath.Join("../../deploy/chart/dashboards/terminations.json"))
	must.Do(p.t, err)
	var dashboard struct {
		Panels []struct {
			Title, Type string
			Targets     []struct{ RefID, Expr string }
		}
	}
	must.Do(p.t, json.Unmarshal(text, &dashboard))
	// Grafana's $__rate_interval is four times the scrape interval, and at least the interval of the graph.
	variables := strings.NewReplacer("$namespace", namespace, "$workload", ".*", "$__range", storyWindow, "$__rate_interval", (4 * scrapeEvery).String())
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			expr := variables.Replace(target.Expr)
			all, err := p.query(expr)
			if panel.Type == "timeseries" {
				all, err = p.graph(expr, began)
			}
			if err == nil && len(all) == 0 && !isLate && panel.Title == "New connections after SIGTERM" {
				continue
			}
			if err != nil || len(all) == 0 {
				p.t.Errorf("%s %s: no data, error %v: %s", panel.Title, target.RefID, err, expr)
				continue
			}
			p.t.Logf("%s %s: %d series, the first of them %v ends with %g", panel.Title, target.RefID, len(all), all[0].labels, all[0].last)
			by := map[string]float64{}
			for _, s := range all {
				by[string(s.labels["proxy"])] = s.last
			}
			switch panel.Title {
			case "Terminations":
				if !near(by[""], terminations) {
					p.t.Errorf("%s: %g; want %g", panel.Title, by[""], terminations)
				}
			case "Requests lost":
				if !near(by[""], lost) {
					p.t.Errorf("%s: %g; want %g", panel.Title, by[""], lost)
				}
			case "Requests lost per termination, by proxy":
				if by["none"] <= 0 || by["lastcall"] != 0 || len(by) != 2 {
					p.t.Errorf("%s: %v; want a loss of none, and 0 of lastcall", panel.Title, by)
				}
			}
		}
	}
}

// firing asserts which alerts are active, and that the observer's end is one.
func (p *prometheus) firing(longest float64) {
	p.t.Helper()
	p.until("had the alerts", func() error {
		got, err := p.alerts()
		if err != nil {
			return err
		}
		if want := []string{"none firing"}; !slices.Equal(got["LastcallRequestsLost"], want) {
			return fmt.Errorf("requests lost: %q; want %q; of all %v", got["LastcallRequestsLost"], want, got)
		}
		if long := got["LastcallLongDrain"]; longest > 2 && !slices.Contains(long, "lastcall firing") {
			return fmt.Errorf("long drain: %q, although the longest took %.1f s", long, longest)
		}
		if len(got["LastcallKilled"])+len(got["LastcallObserverDown"]) > 0 {
			return fmt.Errorf("unexpected: %v", got)
		}
		return nil
	})
	if _, err := exec.Command("kubectl", "--namespace", observerRelease, "delete", "daemonset", "lastcall-observer", "--wait=false").Output(); err != nil {
		p.t.Fatal(err)
	}
	p.until("missed the observer", func() error {
		got, err := p.alerts()
		if err == nil && len(got["LastcallObserverDown"]) == 0 {
			err = fmt.Errorf("%v", got)
		}
		return err
	})
}
