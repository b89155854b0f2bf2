package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	discoveryclient "k8s.io/client-go/kubernetes/typed/discovery/v1"
	policyclient "k8s.io/client-go/kubernetes/typed/policy/v1"
	"k8s.io/client-go/rest"

	"github.com/lastcall-dev/lastcall/kube/workload"
	"github.com/lastcall-dev/lastcall/rehearsal/load"
	"github.com/lastcall-dev/lastcall/rehearsal/outcome"
	"github.com/lastcall-dev/lastcall/rehearsal/traffic"
)

const (
	callers = 4 // clients; every second one opens a connection for each request

	warmUp  = 2 * time.Second        // load before the disruption, which must lose nothing
	after   = 3 * time.Second        // load after the last pod has ended: clients may learn of it late
	recheck = 250 * time.Millisecond // between two looks at the workload
	ending  = 15 * time.Second
)

// Clients reach the API server.
type Clients struct {
	workload.Clients
	Discovery discoveryclient.DiscoveryV1Interface
	Policy    policyclient.PolicyV1Interface
}

// Connect makes clients.
func Connect(config *rest.Config) (c Clients, err error) {
	if c.Clients, err = workload.Connect(config); err != nil {
		return c, err
	}
	var errs [2]error
	c.Discovery, errs[0] = discoveryclient.NewForConfig(config)
	c.Policy, errs[1] = policyclient.NewForConfig(config)
	if err := errors.Join(errs[:]...); err != nil {
		return c, fmt.Errorf("make a client for the API server: %w", err)
	}
	return c, nil
}

// run is one rehearsal.
type run struct {
	Options
	clients Clients
	target  target
	load    *load.Load
	seen    *recorder

	began     time.Time // of the disruption
	completed time.Time // zero: it was not
}

// errDeclined ends a rehearsal that the user has declined.
var errDeclined = errors.New("nothing was changed: not confirmed")

// Run rehearses a disruption of a workload. When ctx ends, the load ends, a changed number of replicas is restored, and the
// result has what was seen until then; a rollout continues in the cluster. An error is about the set-up (OptionError: about an
// option); lost requests are in the result.
func Run(ctx context.Context, clients Clients, o Options) (*outcome.Result, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	r := &run{Options: o, clients: clients, seen: newRecorder()}
	if err := r.inspect(ctx); err != nil {
		return nil, err
	}
	r.prepare()
	defer r.load.Close()
	if err := r.measure(ctx); err != nil {
		return nil, err
	}
	yes, err := o.Confirm(r.plan())
	switch {
	case err != nil:
		return nil, err
	case !yes:
		return nil, errDeclined
	}
	end, err := r.follow(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	if err := r.disruptUnderLoad(ctx); err != nil {
		return nil, err
	}
	return r.result(ctx), nil
}

// prepare makes the clients.
func (r *run) prepare() {
	r.load = &load.Load{Requests: r.requests(), Rate: r.Rate, Descriptors: r.Descriptors}
	for range callers {
		r.load.Clients = append(r.load.Clients, r.client())
	}
}

func (r *run) client() *traffic.Client {
	at := r.address()
	c := &traffic.Client{ClusterIP: true, Timeout: r.Timeout, Targets: func() []string { return []string{at} }}
	if r.URL.Scheme == "https" {
		c.TLS = &tls.Config{ServerName: r.URL.Hostname(), InsecureSkipVerify: r.Insecure, NextProtos: []string{"http/1.1"}}
	}
	return c
}

// measure sends each request without a disruption.
func (r *run) measure(ctx context.Context) error {
	client := r.client()
	defer client.Close()
	if err := r.load.Measure(ctx, client); err != nil {
		return fmt.Errorf("try %s: %w", r.URL.Redacted(), err)
	}
	return nil
}

// follow watches the pods and their endpoints.
func (r *run) follow(ctx context.Context) (end func(), err error) {
	w, c := r.Workload, r.clients
	endPods, err := workload.Follow(ctx, c.Core, c.Core.Pods(w.Namespace), w.Select, &corev1.Pod{}, r.seen.set)
	if err != nil {
		return nil, w.Explain(err, "watch the pods of", "list and watch on pods")
	}
	if len(r.target.services) == 0 {
		return endPods, nil
	}
	ofServices := func(o metav1.ListOptions) metav1.ListOptions {
		selector := metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: discoveryv1.LabelServiceName, Operator: metav1.LabelSelectorOpIn, Values: r.target.services}}}
		o.LabelSelector = metav1.FormatLabelSelector(&selector)
		return o
	}
	endSlices, err := workload.Follow(ctx, c.Discovery, c.Discovery.EndpointSlices(w.Namespace), ofServices, &discoveryv1.EndpointSlice{}, r.seen.setSlice)
	if err != nil {
		endPods()
		return nil, w.Explain(err, "watch the endpoints of", "list and watch on endpointslices.discovery.k8s.io")
	}
	return func() { endSlices(); endPods() }, nil
}

// disruptUnderLoad sends the load before, during and after the disruption. An error: nothing was disrupted, or it failed to
// begin.
func (r *run) disruptUnderLoad(ctx context.Context) error {
	// The end of ctx ends the load in order: requests in flight may still be answered.
	hard, kill := context.WithCancel(context.WithoutCancel(ctx))
	defer kill()
	loading, enough := context.WithCancel(ctx)
	defer enough()
	var flying, loader sync.WaitGroup
	streams, stopStreams := context.WithCancel(hard)
	defer stopStreams()
	defer func() {
		enough()
		loader.Wait()
		stopStreams()
		patience := time.AfterFunc(r.patience(ctx), kill)
		flying.Wait()
		patience.Stop()
	}()
	for client := range r.load.Clients {
		for i, k := range r.load.Requests {
			if k.IsEndless() {
				flying.Go(func() { r.load.One(streams, i, client) })
			}
		}
	}
	loader.Go(func() { r.load.Send(loading, hard, &flying) })
	if !pause(ctx, warmUp) {
		return context.Cause(ctx)
	}
	if answered, lost := r.load.Counts(); lost > 0 {
		return fmt.Errorf("%d of %d requests failed before any disruption: lower --load, or fix the service first; nothing was changed", lost, answered+lost)
	}
	r.seen.begin()
	r.began = time.Now()
	if err := r.disrupt(ctx); err != nil {
		return err
	}
	pause(ctx, after)
	return nil
}

// patience is how long requests in flight may take at the end.
func (r *run) patience(ctx context.Context) time.Duration {
	if ctx.Err() != nil {
		return time.Second
	}
	return r.Timeout
}

// disrupt replaces pods, and returns when all is complete, or ctx or the time ends.
func (r *run) disrupt(ctx context.Context) (err error) {
	limited, stop := context.WithTimeout(ctx, r.Limit)
	defer stop()
	w, c := r.Workload, r.clients.Clients
	old, doing := map[string]bool{}, ""
	switch r.How {
	case Restart:
		for _, p := range r.target.pods {
			old[p.Name+"/"+string(p.UID)] = true
		}
		err = w.Restart(ctx, c, time.Now())
		doing = "the restart has begun"
	case Scale:
		// What was changed is restored, also when ctx has ended.
		defer func() {
			restoring, stop := context.WithTimeout(context.WithoutCancel(ctx), ending)
			defer stop()
			if failed := w.Scale(restoring, c, r.target.state.Wanted); failed != nil {
				err = errors.Join(err, fmt.Errorf("%w; restore it yourself: kubectl --namespace %s scale %s --replicas %d", failed, w.Namespace, w, r.target.state.Wanted))
				return
			}
			r.Note(fmt.Sprintf("scaled back to %d", r.target.state.Wanted))
			r.await(limited, nil)
		}()
		err = w.Scale(ctx, c, r.Replicas)
		doing = fmt.Sprintf("scaled to %d", r.Replicas)
	case DeletePod:
		p := r.target.pods[0]
		old[p.Name+"/"+string(p.UID)] = true
		calling, cancel := context.WithTimeout(ctx, workload.CallTimeout)
		defer cancel()
		uid := p.UID
		err = w.Explain(c.Core.Pods(w.Namespace).Delete(calling, p.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}), "delete pod "+p.Name+" of", "delete on pods")
		doing = "pod " + p.Name + " is deleted"
	}
	if err != nil {
		return err
	}
	r.Note(doing)
	r.await(limited, old)
	return nil
}

// await waits until old pods have gone, none is ending, and the workload has settled.
func (r *run) await(ctx context.Context, old map[string]bool) {
	again := time.NewTicker(recheck)
	defer again.Stop()
	for {
		if !slices.ContainsFunc(r.seen.all(), func(c course) bool {
			return c.gone.IsZero() && (!c.deleted.IsZero() || old[c.pod.Name+"/"+string(c.pod.UID)])
		}) {
			if s, err := r.Workload.Read(ctx, r.clients.Clients); err == nil && s.Settled() {
				r.completed = time.Now()
				return
			}
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			r.completed = time.Time{}
			return
		}
	}
}

// pause waits; false: ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
