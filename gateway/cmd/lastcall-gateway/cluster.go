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

// clusterFlags say which cluster a gateway follows, and what of it.
type clusterFlags struct {
	kubernetes                                                                       bool
	kubeconfig, service, class, controller, namespace, publishAddress, defaultSecret string
}

func (f *clusterFlags) register(flags *pflag.FlagSet) {
	flags.BoolVar(&f.kubernetes, "kubernetes", false, "follow a cluster's Ingresses, Services, EndpointSlices and TLS Secrets")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "`file` to reach the API server by (default the pod's service account, else KUBECONFIG)")
	flags.StringVar(&f.service, "service", "", "stand in front of one Service, without any Ingress: `NAMESPACE/NAME:PORT`, the port by number or name")
	flags.StringVar(&f.class, "ingress-class", ingress.DefaultClass, "`name` of the class whose Ingresses are served when there is no IngressClass object of that name")
	flags.StringVar(&f.controller, "controller", ingress.DefaultController, "spec.controller of the IngressClasses whose Ingresses are served")
	flags.StringVar(&f.namespace, "watch-namespace", "", "look at one `namespace` only (default all)")
	flags.StringVar(&f.publishAddress, "publish-address", "", "IP `address` or host name for the status of the Ingresses (default: none is written)")
	flags.StringVar(&f.defaultSecret, "default-tls-secret", "", "`NAMESPACE/NAME` of the certificate for names that no Ingress has one for")
}

// check says which flags do not go together.
func (f *clusterFlags) check(flags *pflag.FlagSet) error {
	ofIngress := []string{"ingress-class", "controller", "watch-namespace", "publish-address"}
	for _, name := range append([]string{"kubeconfig", "service", "default-tls-secret"}, ofIngress...) {
		if !f.kubernetes && flags.Changed(name) {
			return fmt.Errorf("--%s is for --kubernetes", name)
		}
	}
	for _, name := range ofIngress {
		if f.service != "" && flags.Changed(name) {
			return fmt.Errorf("--%s is for Ingresses, which --service does not use: use only one of them", name)
		}
	}
	return nil
}

// source is the cluster.
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
