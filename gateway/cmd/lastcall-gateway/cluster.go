package main

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/lastcall-dev/lastcall/gateway"
	"github.com/lastcall-dev/lastcall/gateway/ingress"
)

// clusterFlags select the cluster and the objects that a gateway follows.
type clusterFlags struct {
	kubernetes                                                                       bool
	kubeconfig, service, class, controller, namespace, publishAddress, defaultSecret string
}

func (f *clusterFlags) register(flags *pflag.FlagSet) {
	flags.BoolVar(&f.kubernetes, "kubernetes", false, "follow a cluster's Ingresses, Services, EndpointSlices and TLS Secrets")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "`file` for the connection to the API server (default the pod's service account, else KUBECONFIG)")
	flags.StringVar(&f.service, "service", "", "serve one Service, `NAMESPACE/NAME:PORT`, without any Ingress; the port is a number or a name")
	flags.StringVar(&f.class, "ingress-class", ingress.DefaultClass, "`name` of the class whose Ingresses are served if there is no IngressClass object of that name")
	flags.StringVar(&f.controller, "controller", ingress.DefaultController, "spec.controller of the IngressClasses whose Ingresses are served")
	flags.StringVar(&f.namespace, "watch-namespace", "", "follow only this `namespace` (default all)")
	flags.StringVar(&f.publishAddress, "publish-address", "", "IP `address` or host name to write to the status of the Ingresses (default: none)")
}

// registerTLS registers the flags that --help lists under TLS.
func (f *clusterFlags) registerTLS(flags *pflag.FlagSet) {
	flags.StringVar(&f.defaultSecret, "default-tls-secret", "", "Secret, `NAMESPACE/NAME`, with the certificate for host names without one of their own; with --kubernetes")
}

// check refuses flags that contradict each other.
func (f *clusterFlags) check(flags *pflag.FlagSet) error {
	ofIngress := []string{"ingress-class", "controller", "watch-namespace", "publish-address"}
	for _, name := range append([]string{"kubeconfig", "service", "default-tls-secret"}, ofIngress...) {
		if !f.kubernetes && flags.Changed(name) {
			return fmt.Errorf("--%s needs --kubernetes", name)
		}
	}
	for _, name := range ofIngress {
		if f.service != "" && flags.Changed(name) {
			return fmt.Errorf("use only one of --%s and --service, which serves no Ingresses", name)
		}
	}
	return nil
}

// source follows the cluster.
func (f *clusterFlags) source(o ingress.Options) (gateway.Source, error) {
	o.Class, o.Controller, o.Namespace, o.PublishAddress = f.class, f.controller, f.namespace, f.publishAddress
	var err error
	if f.service != "" {
		if o.Service, err = ingress.ParseService(f.service); err != nil {
			return nil, fmt.Errorf("--service: %w", err)
		}
	}
	if f.defaultSecret != "" {
		if o.DefaultSecret, err = ingress.ParseName(f.defaultSecret); err != nil {
			return nil, fmt.Errorf("--default-tls-secret: %w", err)
		}
	}
	config, err := restConfig(f.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reach the API server (--kubeconfig, KUBECONFIG or a pod's service account): %w", err)
	}
	if o.API, err = ingress.Connect(config); err != nil {
		return nil, err
	}
	return ingress.New(o)
}

// restConfig is a kubeconfig's, or the pod's service account's when none is named.
func restConfig(kubeconfig string) (*rest.Config, error) {
	config, err := rest.InClusterConfig()
	if kubeconfig != "" || errors.Is(err, rest.ErrNotInCluster) {
		rules := clientcmd.NewDefaultClientConfigLoadingRules()
		rules.ExplicitPath = kubeconfig
		config, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	}
	return config, err
}
