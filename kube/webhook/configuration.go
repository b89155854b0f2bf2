package webhook

import (
	"cmp"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/kube/inject"
)

// Registration describes how the API server finds the server.
type Registration struct {
	// Name of both configurations, and of the Secret. The API server calls
	// configurations in the order of their names: with a name after "istio" the pod already has Istio's sidecar when
	// lastcall examines it.
	Name string

	// Namespace and Service of the server; Port of the Service.
	Namespace, Service string
	Port               int32

	// FailClosed denies pods while no replica answers.
	FailClosed bool

	// AllNamespaces injects into all namespaces except those labelled lastcall.dev/inject: "false", instead of only those
	// labelled "true".
	AllNamespaces bool

	// Excluded are further namespaces without injection, in addition to the system namespaces and the server's own.
	Excluded []string
}

// DefaultName is Registration's.
const DefaultName = "lastcall-webhook"

// Mutating registers the injection.
func (r Registration) Mutating() *admissionregistration.MutatingWebhookConfiguration {
	pods := []admissionregistration.RuleWithOperations{{
		Operations: []admissionregistration.OperationType{admissionregistration.Create},
		Rule:       admissionregistration.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}, Scope: to(admissionregistration.NamespacedScope)},
	}}
	asks := func(operator metav1.LabelSelectorOperator, values ...string) metav1.LabelSelectorRequirement {
		return metav1.LabelSelectorRequirement{Key: inject.AnnotationInject, Operator: operator, Values: values}
	}
	yes := asks(metav1.LabelSelectorOpIn, "true")
	no := asks(metav1.LabelSelectorOpNotIn, "false") // also without the label
	// The server's own namespace is excluded because its pods must start while it does not answer, and so are the system
	// namespaces.
	elsewhere := metav1.LabelSelectorRequirement{
		Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpNotIn,
		Values: append([]string{"kube-system", "kube-public", "kube-node-lease", r.Namespace}, r.Excluded...),
	}
	// The namespace selectors of the first webhook, which injects into pods without a label, and of the second one, for pods
	// with their own label.
	first, second := yes, asks(metav1.LabelSelectorOpNotIn, "true")
	if r.AllNamespaces {
		first, second = no, asks(metav1.LabelSelectorOpIn, "false")
	}
	one := func(name, path string, namespace, object []metav1.LabelSelectorRequirement) admissionregistration.MutatingWebhook {
		return admissionregistration.MutatingWebhook{
			Name:                    name + ".inject.lastcall.dev",
			ClientConfig:            r.client(path),
			Rules:                   pods,
			FailurePolicy:           to(r.failurePolicy()),
			MatchPolicy:             to(admissionregistration.Equivalent),
			NamespaceSelector:       &metav1.LabelSelector{MatchExpressions: append([]metav1.LabelSelectorRequirement{elsewhere}, namespace...)},
			ObjectSelector:          &metav1.LabelSelector{MatchExpressions: object},
			SideEffects:             to(admissionregistration.SideEffectClassNone),
			TimeoutSeconds:          to[int32](5), // it answers in milliseconds, and every new pod waits for it
			AdmissionReviewVersions: []string{"v1"},
			// Containers that another injector adds later get their hooks and probes, and Istio's sidecar its settings; a second
			// injection changes nothing else.
			ReinvocationPolicy: to(admissionregistration.IfNeededReinvocationPolicy),
		}
	}
	return &admissionregistration.MutatingWebhookConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionregistration.SchemeGroupVersion.String(), Kind: "MutatingWebhookConfiguration"},
		ObjectMeta: r.meta(),
		// Two, because the selectors of one webhook are combined by "and"; no pod matches both.
		Webhooks: []admissionregistration.MutatingWebhook{
			one("namespace", PathInjectNamespace, []metav1.LabelSelectorRequirement{first}, []metav1.LabelSelectorRequirement{no}),
			one("pod", PathInjectPod, []metav1.LabelSelectorRequirement{second}, []metav1.LabelSelectorRequirement{yes}),
		},
	}
}

// failurePolicy is Ignore by default: a pod without lastcall ends as any pod does, a pod that cannot start is an outage. (Istio's is Fail, since a pod
// without its sidecar has no identity.)
func (r Registration) failurePolicy() admissionregistration.FailurePolicyType {
	if r.FailClosed {
		return admissionregistration.Fail
	}
	return admissionregistration.Ignore
}

// Validating registers the warnings. Its failurePolicy is always Ignore: a missing warning is no reason to refuse an
// object.
func (r Registration) Validating() *admissionregistration.ValidatingWebhookConfiguration {
	rule := func(group string, resources ...string) admissionregistration.RuleWithOperations {
		return admissionregistration.RuleWithOperations{
			Operations: []admissionregistration.OperationType{admissionregistration.Create, admissionregistration.Update},
			Rule:       admissionregistration.Rule{APIGroups: []string{group}, APIVersions: []string{"v1"}, Resources: resources, Scope: to(admissionregistration.NamespacedScope)},
		}
	}
	return &admissionregistration.ValidatingWebhookConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionregistration.SchemeGroupVersion.String(), Kind: "ValidatingWebhookConfiguration"},
		ObjectMeta: r.meta(),
		Webhooks: []admissionregistration.ValidatingWebhook{{
			Name:         "lint.lastcall.dev",
			ClientConfig: r.client(PathLint),
			// ReplicaSets and their pods would repeat the warnings for their Deployment, and controllers do not read warnings.
			Rules:         []admissionregistration.RuleWithOperations{rule("apps", "deployments", "statefulsets", "daemonsets"), rule("batch", "jobs", "cronjobs")},
			FailurePolicy: to(admissionregistration.Ignore),
			MatchPolicy:   to(admissionregistration.Equivalent),
			NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
				Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpNotIn,
				Values: []string{"kube-system", "kube-public", "kube-node-lease"},
			}}},
			SideEffects:             to(admissionregistration.SideEffectClassNone),
			TimeoutSeconds:          to[int32](3),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}
}

func (r Registration) meta() metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: cmp.Or(r.Name, DefaultName), Labels: map[string]string{"app.kubernetes.io/name": "lastcall"}}
}

func (r Registration) client(path string) admissionregistration.WebhookClientConfig {
	return admissionregistration.WebhookClientConfig{Service: &admissionregistration.ServiceReference{
		Namespace: r.Namespace, Name: r.Service, Path: &path, Port: to(cmp.Or(r.Port, 443)),
	}}
}

func to[T any](v T) *T { return &v }
