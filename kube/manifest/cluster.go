package manifest

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// Cluster is the name of the file that FromCluster returns.
const Cluster = "cluster"

// page is the number of objects of one request.
const page = 500

// FromCluster reads the objects of the given resources from an API server, of one namespace or, if that is empty, of all.
// Objects that another one owns, such as a Deployment's ReplicaSets, are left out; so are resources that the server does
// not have, and those that the user may not list: forbidden has an error for each. Each request has ctx's deadline. At most
// MaxFiles objects are read.
func FromCluster(ctx context.Context, client dynamic.Interface, namespace string, resources []schema.GroupVersionResource) (f *File, forbidden []error, err error) {
	f = &File{Name: Cluster}
	for _, resource := range resources {
		in := dynamic.ResourceInterface(client.Resource(resource))
		if namespace != "" && resource.Resource != "namespaces" {
			in = client.Resource(resource).Namespace(namespace)
		}
		options := metav1.ListOptions{Limit: page}
		for {
			list, err := in.List(ctx, options)
			if errors.IsForbidden(err) {
				forbidden = append(forbidden, fmt.Errorf("list %s: %w", resource.GroupResource(), err))
			}
			if errors.IsNotFound(err) || errors.IsForbidden(err) {
				break
			}
			if err != nil {
				return nil, nil, fmt.Errorf("list %s: %w", resource.GroupResource(), err)
			}
			for i := range list.Items {
				if err := f.Add(&list.Items[i]); err != nil {
					return nil, nil, err
				}
			}
			if len(f.Objects) > MaxFiles {
				return nil, nil, fmt.Errorf("list %s: more than %d objects: choose a namespace", resource.GroupResource(), MaxFiles)
			}
			if options.Continue = list.GetContinue(); options.Continue == "" {
				break
			}
		}
	}
	if len(forbidden) == len(resources) {
		return nil, nil, forbidden[0]
	}
	return f, forbidden, nil
}

// Add adds an object that is not from a text, unless another object owns it.
func (f *File) Add(u *unstructured.Unstructured) error {
	if len(u.GetOwnerReferences()) > 0 {
		return nil
	}
	text, err := u.MarshalJSON()
	if err != nil {
		return fmt.Errorf("read %s %s/%s: %w", u.GetKind(), u.GetNamespace(), u.GetName(), err)
	}
	f.Objects = append(f.Objects, &Object{APIVersion: u.GetAPIVersion(), Kind: u.GetKind(), Name: u.GetName(), Namespace: u.GetNamespace(),
		Labels: u.GetLabels(), Annotations: u.GetAnnotations(), JSON: text, File: f})
	return nil
}
