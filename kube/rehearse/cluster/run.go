// Package cluster rehearses a rollout of one's own service in a cluster: clients on this machine send load to its URL
// while the workload's pods are replaced, and the API server reports how the pods end.
//
// A client cannot see which pod answers it behind a Service. A loss is therefore attributed to the pods that were
// ending at that time, and its phase is that of the one whose SIGTERM or end was the closest.
package cluster

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lastcall-dev/lastcall/internal/poll"
	"github.com/lastcall-dev/lastcall/internal/sidecar/podend"
	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
	"github.com/lastcall-dev/lastcall/kube/inject"
	"github.com/lastcall-dev/lastcall/kube/pod"
	"github.com/lastcall-dev/lastcall/kube/termination"
	"github.com/lastcall-dev/lastcall/kube/workload"
	"github.com/lastcall-dev/lastcall/rehearsal/load"
	"github.com/lastcall-dev/lastcall/rehearsal/outcome"
	"github.com/lastcall-dev/lastcall/rehearsal/traffic"
)

const (
	callers = 4                      // clients
	after   = 3 * time.Second        // load after the last pod has ended: clients may learn of it late
	recheck = 250 * time.Millisecond // between two looks at the workload
)

// DefaultLimit is the default of Options.Limit.
const DefaultLimit = 10 * time.Minute

// Options of a rehearsal.
type Options struct {
	load.Options
	Workload *workload.Workload
	URL      *url.URL      // http or https; its path precedes those of the requests
	Insecure bool          // accept any certificate
	Limit    time.Duration // of the rollout

	// Confirm is called with the planned action; its error ends the rehearsal before anything has changed.
	Confirm func(plan []string) error
}

func (o *Options) check() error {
	errs := []error{o.Options.Check()}
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if slices.Contains(inject.SystemNamespaces, o.Workload.Namespace) {
		bad("%s is in namespace %s, which is Kubernetes' own", o.Workload, o.Workload.Namespace)
	}
	u := o.URL
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.User != nil {
		bad("--url is %s: must be http://HOST[:PORT][/PATH] or https://…, without a query or password", u.Redacted())
	}
	if o.Limit < 10*time.Second || o.Limit > 24*time.Hour {
		bad("--limit is %v: must be 10s to 24h", o.Limit)
	}
	if err := errors.Join(errs...); err != nil {
		return load.OptionError{Err: err}
	}
	return nil
}

// address is where the clients connect.
func (o *Options) address() string {
	port := map[string]string{"http": "80", "https": "443"}[o.URL.Scheme]
	return net.JoinHostPort(o.URL.Hostname(), cmp.Or(o.URL.Port(), port))
}

// requests are those of the options for the URL's host and below its path.
func (o *Options) requests() []load.Request {
	all := slices.Clone(o.Requests)
	for i := range all {
		r := &all[i]
		if r.Protocol != traffic.GRPC {
			r.Path = strings.TrimSuffix(o.URL.Path, "/") + r.Path
		}
		if r.Header = r.Header.Clone(); r.Header == nil {
			r.Header = http.Header{}
		}
		if r.Header.Get("Host") == "" {
			r.Header.Set("Host", o.URL.Host)
		}
	}
	return all
}

func (o *Options) client() *traffic.Client {
	at := o.address()
	c := &traffic.Client{ClusterIP: true, Timeout: o.Timeout, Targets: func() []string { return []string{at} }}
	if o.URL.Scheme == "https" {
		c.TLS = &tls.Config{
			ServerName: o.URL.Hostname(), InsecureSkipVerify: o.Insecure, NextProtos: []string{"http/1.1"},
		}
	}
	return c
}

// Run rehearses a rollout of a workload. An error is about the set-up (load.OptionError: about an option), or ctx's,
// after which a rollout that has begun continues in the cluster; lost requests are in the result.
func Run(ctx context.Context, clients workload.Clients, o Options) (*outcome.Result, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	w := o.Workload
	t, err := inspect(ctx, clients, w)
	if err != nil {
		return nil, err
	}
	l := &load.Load{Requests: o.requests(), Rate: o.Rate, Descriptors: o.Descriptors}
	defer l.Close()
	for range callers {
		l.Clients = append(l.Clients, o.client())
	}
	first := o.client() // of its own: a load balancer may drop its connections before the confirmation
	defer first.Close()
	if err := l.Measure(ctx, first); err != nil {
		return nil, fmt.Errorf("try %s: %w", o.URL.Redacted(), err)
	}
	if err := o.Confirm(t.plan(&o, l)); err != nil {
		return nil, err
	}
	seen := &recorder{hook: t.hook, ends: map[types.UID]*outcome.Ending{}}
	end, err := w.Follow(ctx, clients, seen.set)
	if err != nil {
		return nil, err
	}
	defer end()
	done := outcome.Rollout{Gateway: o.address()}
	complete := false
	if err := l.Around(ctx, after, func() error {
		if answered, lost := l.Counts(); lost > 0 {
			return fmt.Errorf("%d of %d requests failed before any disruption: "+
				"lower --load, or fix the service first; nothing was changed", lost, answered+lost)
		}
		done.Began = time.Now()
		if err := w.Restart(ctx, clients, done.Began); err != nil {
			return err
		}
		complete = o.await(ctx, clients, seen, t.pods)
		return nil
	}); err != nil {
		return nil, err
	}
	done.Old = seen.endings()
	return o.result(t, l, &done, complete), nil
}

// await waits until so many pods have gone, none is ending, and the workload has settled; false: it has not within the
// limit.
func (o *Options) await(ctx context.Context, clients workload.Clients, seen *recorder, pods int) bool {
	ctx, stop := context.WithTimeout(ctx, o.Limit)
	defer stop()
	for poll.Pause(ctx, recheck) == nil {
		if seen.haveGone(pods) {
			if s, err := o.Workload.Read(ctx, clients); err == nil && s.Settled() {
				return true
			}
		}
	}
	return false
}

func (o *Options) result(t *target, l *load.Load, done *outcome.Rollout, complete bool) *outcome.Result {
	w := o.Workload
	r := &outcome.Result{
		Schema: outcome.Schema, App: o.URL.Redacted(), URL: o.URL.Redacted(),
		Workload: w.Kind + " " + w.Namespace + "/" + w.Name, Hook: t.preStop,
		GraceMS: max(1000, t.ending.Grace.Milliseconds()), Requests: outcome.Kinds(l), Repeat: 1,
		TookMS: time.Since(done.Began).Milliseconds(),
		Notes:  t.notes, Began: done.Began,
	}
	if !complete {
		text := fmt.Sprintf("not complete within %v: kubectl --namespace %s rollout status %s", o.Limit, w.Namespace, w)
		r.Notes = append(r.Notes, text)
	}
	row := outcome.Row{Strategy: "restart",
		Words: "restarted as by kubectl rollout restart; " + t.state.Update, Reasons: map[traffic.Failure]int{}}
	row.Record(l, done)
	r.Rows = []outcome.Row{row}
	r.OK = row.Lost == 0 && complete
	return r
}

// maxPods is how many pods a workload may have.
const maxPods = 500

// target is the workload as it is before the rollout.
type target struct {
	state   workload.State
	pods    int
	ending  *termination.Termination // of its pods
	hook    podend.Hook              // of the first of their own containers
	preStop string                   // the same in words
	notes   []string
}

// inspect reads the workload and refuses one that must not be restarted now.
func inspect(ctx context.Context, clients workload.Clients, w *workload.Workload) (*target, error) {
	state, err := w.Read(ctx, clients)
	if err != nil {
		return nil, err
	}
	pods, err := w.Pods(ctx, clients, maxPods+1)
	if err != nil {
		return nil, err
	}
	if err := state.CanRestart(w); err != nil {
		return nil, err
	}
	switch {
	case !state.Settled():
		return nil, fmt.Errorf("a rollout of %s is in progress, or its pods are not available (%d of %d): "+
			"wait until it is complete", w, state.Available, state.Wanted)
	case len(pods) == 0:
		return nil, fmt.Errorf("%s has no running pod", w)
	case len(pods) > maxPods:
		return nil, fmt.Errorf("%s has more than %d pods: rehearse a smaller workload with the same pods", w, maxPods)
	}
	// The pods themselves have the additions of the meshes' webhooks.
	t := &target{
		state: state, pods: len(pods), ending: termination.Of(&pods[0], termination.Options{}),
		preStop: "no preStop hook", hook: podend.Hook{Kind: podend.NoHook, IsKnown: true},
	}
	for _, c := range slices.Backward(t.ending.Containers) {
		if c.Role == podend.App {
			t.hook = c.Hook
		}
	}
	if t.hook.Kind != podend.NoHook {
		t.preStop = "preStop " + t.hook.Text
	}
	if strings.HasPrefix(state.Update, "Recreate") {
		t.notes = append(t.notes,
			"the strategy Recreate ends all pods before it starts new ones: requests in between are lost")
	}
	return t, nil
}

// plan is the rehearsal's next action.
func (t *target) plan(o *Options, l *load.Load) []string {
	var kinds []string
	for _, k := range o.Requests {
		kinds = append(kinds, k.String())
	}
	w := o.Workload
	return append([]string{
		fmt.Sprintf("send %s to %s from this machine, %.3g requests a second, until all is complete",
			strings.Join(kinds, ", "), o.URL.Redacted(), l.Rate),
		fmt.Sprintf("restart %s in namespace %s as kubectl rollout restart does (%s): %s of it will be replaced",
			w, w.Namespace, t.state.Update, terminal.Count(t.pods, "pod")),
		fmt.Sprintf("each pod has %v to end (%s)", t.ending.Grace, t.preStop),
	}, t.notes...)
}

// recorder follows the ends of pods, by the times at which the API server's reports arrive.
type recorder struct {
	hook podend.Hook // of the pods' app

	mu   sync.Mutex // guards the fields below
	ends map[types.UID]*outcome.Ending
}

// set records a state of a pod.
func (r *recorder) set(p *corev1.Pod, gone bool) {
	if p.DeletionTimestamp == nil && !gone {
		return
	}
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.ends[p.UID]
	if e == nil {
		e = &outcome.Ending{Name: p.Name, IsReported: true, Deleted: now}
		_, e.Grace = pod.Deletion(p)
		if r.hook.Kind == podend.NoHook || r.hook.IsKnown {
			e.Term = now.Add(r.hook.Duration)
		}
		r.ends[p.UID] = e
	}
	if e.Ended.IsZero() && (gone || pod.HasEnded(p)) {
		e.Ended = now
		e.EndedBy = endedBy(p)
		if len(pod.Killed(p, e.Deleted.Add(e.Grace-time.Second))) > 0 {
			e.Killed = now
		}
	}
	if gone {
		e.Gone = now
	}
}

// haveGone reports whether so many pods have gone, and none is ending.
func (r *recorder) haveGone(pods int) bool {
	all := r.endings()
	return len(all) >= pods && !slices.ContainsFunc(all, func(e outcome.Ending) bool { return e.Gone.IsZero() })
}

// endings returns the ends of pods, by the time of their deletion.
func (r *recorder) endings() (all []outcome.Ending) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.ends {
		all = append(all, *e)
	}
	slices.SortFunc(all, func(a, b outcome.Ending) int {
		return cmp.Or(a.Deleted.Compare(b.Deleted), strings.Compare(a.Name, b.Name))
	})
	return all
}

// endedBy is how the pod's containers ended: "exit 0", or "app exit 0, proxy SIGKILL".
func endedBy(p *corev1.Pod) string {
	var all []string
	for _, s := range p.Status.ContainerStatuses {
		end := pod.EndOf(&s)
		if end == nil {
			continue
		}
		text := end.String()
		if len(p.Spec.Containers) > 1 {
			text = s.Name + " " + text
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}
