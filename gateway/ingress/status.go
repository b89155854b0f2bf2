package ingress

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"net"
	"slices"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// publisher writes the gateway's address into the status of Ingresses. All replicas write the same value, and only where it
// differs. The address is not removed when a replica ends, nor when an Ingress moves to another controller, which writes its
// own.
type publisher struct {
	api    API
	ip     string
	host   string
	log    *slog.Logger
	wanted chan []*networkingv1.Ingress // holds only the latest list

	// written is the version of each Ingress that has been patched. The patch is not repeated before the informer
	// delivers its result. Only run uses it.
	written map[types.UID]string
}

// publishTimeout limits one write. publishAgain is the pause after a failed one.
const (
	publishTimeout = 5 * time.Second
	publishAgain   = 10 * time.Second
)

func newPublisher(o Options) *publisher {
	p := &publisher{api: o.API, log: o.Log, wanted: make(chan []*networkingv1.Ingress, 1), written: make(map[types.UID]string)}
	if net.ParseIP(o.PublishAddress) != nil {
		p.ip = o.PublishAddress
	} else {
		p.host = o.PublishAddress
	}
	return p
}

// want replaces the list of Ingresses. It must be called by one goroutine at a time.
func (p *publisher) want(list []*networkingv1.Ingress) {
	select {
	case <-p.wanted:
	default:
	}
	p.wanted <- list
}

// run writes until ctx ends.
func (p *publisher) run(ctx context.Context) {
	var list []*networkingv1.Ingress
	var again <-chan time.Time
	for {
		select {
		case list = <-p.wanted:
		case <-again:
		case <-ctx.Done():
			return
		}
		again = nil
		if !p.write(ctx, list) {
			again = time.After(publishAgain)
		}
	}
}

// write patches the Ingresses that lack the address, and reports whether all patches succeeded.
func (p *publisher) write(ctx context.Context, list []*networkingv1.Ingress) bool {
	ok := true
	maps.DeleteFunc(p.written, func(id types.UID, _ string) bool {
		return !slices.ContainsFunc(list, func(in *networkingv1.Ingress) bool { return in.UID == id })
	})
	for _, in := range list {
		if version, done := p.written[in.UID]; p.has(in) || done && version == in.ResourceVersion || ctx.Err() != nil {
			continue
		}
		if err := p.patch(ctx, in); err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
			p.log.Error("cannot publish address", "ingress", nameOf(in), "error", err, "needs", "patch on ingresses/status")
			ok = false
			continue
		}
		p.written[in.UID] = in.ResourceVersion
	}
	return ok
}

func (p *publisher) has(in *networkingv1.Ingress) bool {
	have := in.Status.LoadBalancer.Ingress
	return len(have) == 1 && have[0].IP == p.ip && have[0].Hostname == p.host
}

func (p *publisher) patch(ctx context.Context, in *networkingv1.Ingress) error {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	status := networkingv1.IngressStatus{LoadBalancer: networkingv1.IngressLoadBalancerStatus{
		Ingress: []networkingv1.IngressLoadBalancerIngress{{IP: p.ip, Hostname: p.host}},
	}}
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	_, err = p.api.NetworkingV1().Ingresses(in.Namespace).Patch(ctx, in.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}
