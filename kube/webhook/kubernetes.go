package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	admissionclient "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/lastcall-dev/lastcall/kube/inject"
	"github.com/lastcall-dev/lastcall/kube/pod"
	"github.com/lastcall-dev/lastcall/kube/workload"
)

// Kubernetes is the Cluster of a kubeconfig or of a pod's service account. It needs get, create, update on the one
// Secret; get, patch on the two configurations; get on namespaces.
type Kubernetes struct {
	core      coreclient.CoreV1Interface
	admission admissionclient.AdmissionregistrationV1Interface
	namespace string // of the Secret
	name      string // of the Secret and of both configurations

	known    *cache.LRUExpireCache // namespaces
	inFlight singleflight.Group
}

// NewKubernetes returns a client. name is the name of the Secret, in namespace, and of the webhook configurations.
func NewKubernetes(config *rest.Config, namespace, name string) (*Kubernetes, error) {
	config, client, err := workload.HTTPClient(config, 10*time.Second)
	if err != nil {
		return nil, err
	}
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON // trust reads it
	core, err := coreclient.NewForConfigAndClient(config, client)
	admission, admissionErr := admissionclient.NewForConfigAndClient(config, client)
	if err := errors.Join(err, admissionErr); err != nil {
		return nil, fmt.Errorf("make a client for the API server: %w", err)
	}
	known := cache.NewLRUExpireCache(maxNamespaces)
	return &Kubernetes{core: core, admission: admission, namespace: namespace, name: name, known: known}, nil
}

// Secret implements Cluster.
func (k *Kubernetes) Secret(ctx context.Context) (map[string][]byte, string, error) {
	s, err := k.core.Secrets(k.namespace).Get(ctx, k.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	return s.Data, s.ResourceVersion, nil
}

// PutSecret implements Cluster.
func (k *Kubernetes) PutSecret(ctx context.Context, data map[string][]byte, version string) error {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: k.name, Namespace: k.namespace, ResourceVersion: version,
			Labels: map[string]string{"app.kubernetes.io/name": "lastcall"},
		},
		Type: corev1.SecretTypeOpaque,
		Data: data,
	}
	var err error
	if version == "" {
		_, err = k.core.Secrets(k.namespace).Create(ctx, s, metav1.CreateOptions{})
	} else {
		_, err = k.core.Secrets(k.namespace).Update(ctx, s, metav1.UpdateOptions{})
	}
	if apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || version != "" && apierrors.IsNotFound(err) {
		return ErrConflict
	}
	return err
}

// Trust implements Cluster. It ignores configurations that do not exist.
func (k *Kubernetes) Trust(ctx context.Context, bundle []byte) error {
	for _, resource := range []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"} {
		if err := k.trust(ctx, resource, bundle); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("%s %s: %w", resource, k.name, err)
		}
	}
	return nil
}

// trust gives each webhook of a configuration the bundle. The first operation of the patch makes it fail if the list
// has changed since.
func (k *Kubernetes) trust(ctx context.Context, resource string, bundle []byte) error {
	client := k.admission.RESTClient()
	text, err := client.Get().Resource(resource).Name(k.name).Do(ctx).Raw()
	if err != nil {
		return err
	}
	var have struct {
		Webhooks []struct {
			Name         string
			ClientConfig struct{ CABundle []byte }
		}
	}
	if err := json.Unmarshal(text, &have); err != nil {
		return err
	}
	var changes []inject.Operation
	for i, w := range have.Webhooks {
		if at := "/webhooks/" + strconv.Itoa(i); !bytes.Equal(w.ClientConfig.CABundle, bundle) {
			changes = append(changes, inject.Operation{Op: "test", Path: at + "/name", Value: w.Name},
				inject.Operation{Op: "add", Path: at + "/clientConfig/caBundle", Value: bundle})
		}
	}
	if changes == nil {
		return nil
	}
	patch, err := json.Marshal(changes)
	if err != nil {
		return err
	}
	return client.Patch(types.JSONPatchType).Resource(resource).Name(k.name).Body(patch).Do(ctx).Error()
}

// Limits of the cache of namespaces.
const (
	labelsLast    = 10 * time.Second // until a namespace is read again
	labelsKept    = time.Hour        // how long the previous state is used if it cannot be read
	labelsTimeout = time.Second      // how long a pod's creation waits for them
	maxNamespaces = 1000
)

type knownNamespace struct {
	inject.Namespace
	until time.Time
}

// Namespace has the labels of a namespace that injection reads, cached for a short time; the previous state and an
// error if it cannot be read now. Pods that are created at the same time in one namespace share one look-up.
func (k *Kubernetes) Namespace(ctx context.Context, name string) (inject.Namespace, error) {
	var before knownNamespace
	if value, ok := k.known.Get(name); ok {
		if before = value.(knownNamespace); time.Now().Before(before.until) {
			return before.Namespace, nil
		}
	}
	read := k.inFlight.DoChan(name, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), labelsTimeout) // others wait for it too
		defer cancel()
		ns, err := k.core.Namespaces().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return before.Namespace, fmt.Errorf("get namespace %s: %w", name, err)
		}
		now := inject.Namespace{Name: name, Labels: ns.Labels, Annotations: ns.Annotations}
		maps.DeleteFunc(now.Annotations, func(key, _ string) bool { return !slices.Contains(pod.MeshKeys(), key) })
		k.known.Add(name, knownNamespace{now, time.Now().Add(labelsLast)}, labelsKept)
		return now, nil
	})
	select {
	case result := <-read:
		namespace, _ := result.Val.(inject.Namespace)
		return namespace, result.Err
	case <-ctx.Done():
		return before.Namespace, ctx.Err()
	}
}
