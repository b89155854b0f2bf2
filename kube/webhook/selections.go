package webhook

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/kube/events"
)

// Selections are the selectors of the registered webhooks; none if none is registered. Webhooks with conditions that
// only the API server can evaluate are omitted.
func (k *Kubernetes) Selections(ctx context.Context) ([]events.Selection, error) {
	configuration, err := k.admission.MutatingWebhookConfigurations().Get(ctx, k.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("MutatingWebhookConfiguration %s: %w", k.name, err)
	}
	var out []events.Selection
	for _, w := range configuration.Webhooks {
		if len(w.MatchConditions) > 0 || w.ClientConfig.Service == nil || w.ClientConfig.Service.Path == nil {
			continue
		}
		namespace, err := metav1.LabelSelectorAsSelector(w.NamespaceSelector)
		if err != nil {
			return nil, fmt.Errorf("MutatingWebhookConfiguration %s: %s: namespaceSelector: %w", k.name, w.Name, err)
		}
		object, err := metav1.LabelSelectorAsSelector(w.ObjectSelector)
		if err != nil {
			return nil, fmt.Errorf("MutatingWebhookConfiguration %s: %s: objectSelector: %w", k.name, w.Name, err)
		}
		out = append(out, events.Selection{Namespace: namespace, Object: object, ByDefault: *w.ClientConfig.Service.Path == PathInjectNamespace})
	}
	return out, nil
}
