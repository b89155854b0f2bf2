package cluster

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/kube/workload"
	"github.com/lastcall-dev/lastcall/rehearsal/load"
	"github.com/lastcall-dev/lastcall/rehearsal/traffic"
)

// How is the disruption.
type How string

// The disruptions.
const (
	Restart   How = "restart"    // as kubectl rollout restart
	Scale     How = "scale"      // to Options.Replicas, and back
	DeletePod How = "delete-pod" // one pod, which its controller replaces
)

// Options of a rehearsal.
type Options struct {
	Workload *workload.Workload
	How      How
	Replicas int32 // of Scale

	URL         *url.URL // http or https; its path precedes those of the requests
	Insecure    bool     // accept any certificate
	Requests    []load.Request
	Descriptors string        // load.Load.Descriptors
	Rate        float64       // requests a second; 0: about two in flight, at most 20 a second
	Timeout     time.Duration // of a request; 0: load.DefaultTimeout

	Limit   time.Duration // of the disruption; 0: DefaultLimit
	Protect []string      // namespaces that are not touched, in addition to Kubernetes' own

	// Confirm is called with what is about to be done; false ends the rehearsal before anything has changed.
	Confirm func(plan []string) (bool, error)
	// Note receives what happens, one line at a time; nil: nothing does.
	Note func(text string)
}

// DefaultLimit is how long a disruption may take.
const DefaultLimit = 10 * time.Minute

// protected are Kubernetes' own namespaces.
var protected = []string{"kube-system", "kube-public", "kube-node-lease"}

// OptionError is an error about an option.
type OptionError struct{ Err error }

func (e OptionError) Error() string { return e.Err.Error() }
func (e OptionError) Unwrap() error { return e.Err }

// check fills in defaults.
func (o *Options) check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	w := o.Workload
	if slices.Contains(protected, w.Namespace) || slices.Contains(o.Protect, w.Namespace) {
		bad("%s is in namespace %s, which is protected: choose a workload in another one", w, w.Namespace)
	}
	switch {
	case w.Kind == "pod":
		bad("%s: must be a deployment, statefulset or daemonset, which replaces its pods", w)
	case o.How == Scale && w.Kind == "daemonset":
		bad("--scale %d: a daemonset has no number of replicas", o.Replicas)
	case o.How == Scale && (o.Replicas < 0 || o.Replicas > maxPods):
		bad("--scale is %d: must be 0 to %d", o.Replicas, maxPods)
	}
	if o.URL.Scheme != "http" && o.URL.Scheme != "https" || o.URL.Host == "" || o.URL.RawQuery != "" || o.URL.User != nil {
		bad("--url is %s: must be http://HOST[:PORT][/PATH] or https://…, without a query or password", o.URL.Redacted())
	}
	if len(o.Requests) == 0 {
		bad("missing --request: a request that the service answers, as --request 'GET /'")
	}
	if o.Rate < 0 || o.Rate > load.MaxRate {
		bad("--load is %g/s: must be more than 0, at most %g/s", o.Rate, load.MaxRate)
	}
	if o.Timeout == 0 {
		o.Timeout = load.DefaultTimeout
	}
	if o.Timeout < time.Second || o.Timeout > time.Hour {
		bad("--timeout is %v: must be 1s to 1h", o.Timeout)
	}
	if o.Limit == 0 {
		o.Limit = DefaultLimit
	}
	if o.Limit < 10*time.Second || o.Limit > 24*time.Hour {
		bad("--limit is %v: must be 10s to 24h", o.Limit)
	}
	if len(errs) > 0 {
		return OptionError{errors.Join(errs...)}
	}
	if o.Note == nil {
		o.Note = func(string) {}
	}
	return nil
}

// address is where the clients connect.
func (o *Options) address() string {
	port := o.URL.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[o.URL.Scheme]
	}
	return net.JoinHostPort(o.URL.Hostname(), port)
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
