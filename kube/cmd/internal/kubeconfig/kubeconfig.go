// Package kubeconfig finds the API server.
package kubeconfig

import (
	"errors"
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
)

// load reads a kubeconfig file, or else that of KUBECONFIG.
func load(kubeconfig, context string) clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: context}
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
}

// RESTConfig returns the connection to the API server: that of the kubeconfig file and its context, of the pod's
// service account if neither is named, or else of KUBECONFIG.
func RESTConfig(kubeconfig, context string) (*rest.Config, error) {
	config, err := rest.InClusterConfig()
	if kubeconfig != "" || context != "" || errors.Is(err, rest.ErrNotInCluster) {
		config, err = load(kubeconfig, context).ClientConfig()
	}
	if clientcmd.IsEmptyConfig(err) {
		err = errors.New("no kubeconfig found: set --kubeconfig or KUBECONFIG, or run in a pod")
	}
	if err != nil {
		err = cli.UsageError{Err: fmt.Errorf("connect to the API server: %w", err)}
	}
	return config, err
}

// NamespaceOf is the namespace of a context of the kubeconfig, as in RESTConfig; default without one.
func NamespaceOf(kubeconfig, context string) string {
	namespace, _, err := load(kubeconfig, context).Namespace()
	if err != nil || namespace == "" {
		return "default"
	}
	return namespace
}
