package check

import (
	"context"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
)

// nativeSince is the first version whose native sidecars are on by default.
var nativeSince = version.MustParseGeneric("1.29")

// api reports whether the API server responds.
func (c *checker) api() bool {
	c.group("Kubernetes API")
	var found *version.Version
	const reached = "the API server responds"
	if !c.look(reached, func(ctx context.Context) error {
		info, err := c.serverVersion(ctx)
		if err != nil {
			return err
		}
		found, err = version.ParseGeneric(info)
		return err
	}) {
		return false
	}
	c.ok(reached, "version %s", found)
	if found.LessThan(nativeSince) {
		c.add(Check{Name: "the version has native sidecars", Status: Failed, Detail: fmt.Sprintf("%s is older than %s", found, nativeSince),
			Hint: "upgrade the cluster, or inject classic sidecars: Helm value sidecar.native=false", Page: "install.md"})
	} else {
		c.ok("the version has native sidecars", "%s or later", nativeSince)
	}
	return true
}

// serverVersion asks with a deadline; ServerVersion takes no context.
func (c *checker) serverVersion(ctx context.Context) (string, error) {
	type answer struct {
		text string
		err  error
	}
	answered := make(chan answer, 1)
	go func() {
		info, err := c.Server.ServerVersion()
		if err != nil {
			answered <- answer{err: err}
			return
		}
		answered <- answer{text: info.GitVersion}
	}()
	select {
	case a := <-answered:
		return a.text, a.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// permissions are what an installation needs.
func (c *checker) permissions() {
	c.group("Permissions to install")
	for _, p := range []struct{ group, resource, namespace string }{
		{"", "namespaces", ""},
		{"rbac.authorization.k8s.io", "clusterroles", ""},
		{"rbac.authorization.k8s.io", "clusterrolebindings", ""},
		{"admissionregistration.k8s.io", "mutatingwebhookconfigurations", ""},
		{"admissionregistration.k8s.io", "validatingwebhookconfigurations", ""},
		{"apps", "deployments", c.Namespace},
		{"", "services", c.Namespace},
		{"", "serviceaccounts", c.Namespace},
		{"rbac.authorization.k8s.io", "roles", c.Namespace},
		{"policy", "poddisruptionbudgets", c.Namespace},
	} {
		name := "may create " + p.resource
		var review *authorizationv1.SelfSubjectAccessReview
		if !c.look(name, func(ctx context.Context) (err error) {
			review, err = c.Authorization.SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
				ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "create", Group: p.group, Resource: p.resource, Namespace: p.namespace},
			}}, metav1.CreateOptions{})
			return err
		}) {
			continue
		}
		if review.Status.Allowed {
			c.ok(name, "")
			continue
		}
		c.add(Check{Name: name, Status: Failed, Detail: strings.TrimSpace("not allowed. " + review.Status.Reason), Hint: "install as a cluster administrator", Page: "install.md"})
	}
}

// leftovers of an earlier installation would take part in this one.
func (c *checker) leftovers() {
	c.group("Earlier installation")
	const name = "no webhook configuration of lastcall exists"
	found := false
	if !c.look(name, func(ctx context.Context) error {
		_, err := c.Admission.MutatingWebhookConfigurations().Get(ctx, c.Name, metav1.GetOptions{})
		found = err == nil
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}) {
		return
	}
	if found {
		c.add(Check{Name: name, Status: Warning, Detail: "MutatingWebhookConfiguration " + c.Name + " exists", Hint: "lastcall is installed already: run lastcallctl check without --pre", Page: "install.md#upgrade"})
		return
	}
	c.ok(name, "")
}
