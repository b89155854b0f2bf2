package ingress

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	discoveryclient "k8s.io/client-go/kubernetes/typed/discovery/v1"
	networkingclient "k8s.io/client-go/kubernetes/typed/networking/v1"
	"k8s.io/client-go/rest"
)

// API is the part of kubernetes.Interface that a Follower needs.
type API interface {
	CoreV1() coreclient.CoreV1Interface
	DiscoveryV1() discoveryclient.DiscoveryV1Interface
	NetworkingV1() networkingclient.NetworkingV1Interface
}

type api struct {
	core       coreclient.CoreV1Interface
	discovery  discoveryclient.DiscoveryV1Interface
	networking networkingclient.NetworkingV1Interface
}

func (a *api) CoreV1() coreclient.CoreV1Interface                   { return a.core }
func (a *api) DiscoveryV1() discoveryclient.DiscoveryV1Interface    { return a.discovery }
func (a *api) NetworkingV1() networkingclient.NetworkingV1Interface { return a.networking }

// Connect makes an API from the settings of a kubeconfig or a service account. It makes no request.
func Connect(config *rest.Config) (API, error) {
	config = rest.CopyConfig(config)
	config.Timeout = 0 // watches last
	config.QPS, config.Burst = 50, 100
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.UserAgent = "lastcall-gateway"
	fail := func(err error) (API, error) { return nil, fmt.Errorf("make a client for the API server: %w", err) }
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return fail(err)
	}
	a := new(api)
	if a.core, err = coreclient.NewForConfigAndClient(config, client); err != nil {
		return fail(err)
	}
	if a.discovery, err = discoveryclient.NewForConfigAndClient(config, client); err != nil {
		return fail(err)
	}
	if a.networking, err = networkingclient.NewForConfigAndClient(config, client); err != nil {
		return fail(err)
	}
	return a, nil
}
