//go:build e2e

package e2e

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/logs/logstest"
	"github.com/lastcall-dev/lastcall/rehearsal/gateway"
)

// gateway serves the rehearsals' gateway on loopback in front of a Service of one port, and returns its URL once the app
// responds. It routes a change of the endpoints within the API server's event.
func (n *namespace) gateway(service string) string {
	n.T.Helper()
	var log logstest.Buffer
	g := gateway.New(slog.New(slog.NewTextHandler(&log, nil)))
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(n.Name),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = discoveryv1.LabelServiceName + "=" + service }))
	slices := factory.Discovery().V1().EndpointSlices()
	set := func() {
		all, _ := slices.Lister().List(labels.Everything()) // from memory
		g.SetEndpoints(serving(all))
	}
	_, err := slices.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { set() }, UpdateFunc: func(any, any) { set() }, DeleteFunc: func(any) { set() },
	})
	must.Do(n.T, err)
	stop := make(chan struct{})
	factory.Start(stop)

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Do(n.T, err)
	server := &http.Server{Handler: g, ReadHeaderTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	n.T.Cleanup(func() {
		close(stop)
		factory.Shutdown()
		_ = server.Close()
		<-served
		g.SetEndpoints(nil)
		if n.T.Failed() {
			n.T.Logf("the gateway:\n%s", log.String())
		}
	})
	url := "http://" + listener.Addr().String()
	n.serves(url)
	return url
}

// serving returns the addresses of the endpoints that are ready or, if there is none, that are terminating and still
// serve (KEP-1669). Missing conditions have the API's defaults.
func serving(all []*discoveryv1.EndpointSlice) []string {
	var ready, terminating []string
	for _, s := range all {
		for _, p := range s.Ports {
			for _, e := range s.Endpoints {
				address := net.JoinHostPort(e.Addresses[0], fmt.Sprint(*p.Port))
				switch c := e.Conditions; {
				case c.Ready == nil || *c.Ready:
					ready = append(ready, address)
				case (c.Serving == nil || *c.Serving) && c.Terminating != nil && *c.Terminating:
					terminating = append(terminating, address)
				}
			}
		}
	}
	if len(ready) > 0 {
		return ready
	}
	return terminating
}
