package ingress

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lastcall-dev/lastcall/gateway"
)

// endpoint parses "10.0.0.1 ready serving terminating=false pod=x". Conditions that are not named are nil.
func endpoint(text string) discoveryv1.Endpoint {
	words := strings.Fields(text)
	e := discoveryv1.Endpoint{Addresses: strings.Split(words[0], ",")}
	for _, w := range words[1:] {
		name, value, said := strings.Cut(w, "=")
		is := new(!said || value == "true")
		switch name {
		case "ready":
			e.Conditions.Ready = is
		case "serving":
			e.Conditions.Serving = is
		case "terminating":
			e.Conditions.Terminating = is
		case "pod":
			e.TargetRef = &corev1.ObjectReference{Kind: "Pod", Name: value, UID: types.UID(value)}
		default:
			panic(w)
		}
	}
	return e
}

func port(name string, number int32) discoveryv1.EndpointPort {
	return discoveryv1.EndpointPort{Name: new(name), Port: new(number), Protocol: new(corev1.ProtocolTCP)}
}

// slice is one of Service web in namespace default with port http = 8080.
func slice(name string, endpoints ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{port("http", 8080)},
	}
	for _, e := range endpoints {
		s.Endpoints = append(s.Endpoints, endpoint(e))
	}
	if len(endpoints) > 0 && strings.Contains(strings.Fields(endpoints[0])[0], ":") {
		s.AddressType = discoveryv1.AddressTypeIPv6
	}
	return s
}

func with(s *discoveryv1.EndpointSlice, f func(*discoveryv1.EndpointSlice)) *discoveryv1.EndpointSlice {
	f(s)
	return s
}

const (
	v4 = corev1.IPv4Protocol
	v6 = corev1.IPv6Protocol
)

func TestEndpoints(t *testing.T) {
	type states = gateway.EndpointStates
	for _, tt := range []struct {
		name     string
		slices   []*discoveryv1.EndpointSlice
		families []corev1.IPFamily
		want     string
		states   states
	}{
		{"ready ones", []*discoveryv1.EndpointSlice{slice("a", "10.0.0.2 ready serving", "10.0.0.1 ready serving terminating=false")}, nil,
			"10.0.0.1:8080 10.0.0.2:8080", states{Ready: 2}},
		{"no conditions: ready", []*discoveryv1.EndpointSlice{slice("a", "10.0.0.1")}, nil, "10.0.0.1:8080", states{Ready: 1}},
		{"not ready", []*discoveryv1.EndpointSlice{slice("a", "10.0.0.1 ready=false", "10.0.0.2 ready=false serving=false")}, nil, "", states{NotReady: 2}},
		{"terminating, while another is ready", []*discoveryv1.EndpointSlice{slice("a", "10.0.0.1 ready=false serving terminating", "10.0.0.2 ready serving")}, nil,
			"10.0.0.2:8080", states{Ready: 1, Terminating: 1}},
		{"terminating and serving, while none is ready (KEP-1669)", []*discoveryv1.EndpointSlice{slice("a", "10.0.0.1 ready=false serving terminating", "10.0.0.2 ready=false serving=false")}, nil,
			"10.0.0.1:8080", states{Terminating: 1, NotReady: 1}},
		{"terminating, without the serving condition", []*discoveryv1.EndpointSlice{slice("a", "10.0.0.1 ready=false terminating")}, nil, "10.0.0.1:8080", states{Terminating: 1}},
		{"terminating and no longer serving", []*discoveryv1.EndpointSlice{slice("a", "10.0.0.1 ready=false serving=false terminating")}, nil, "", states{NotReady: 1}},
		{"ready and terminating (publishNotReadyAddresses), while another is ready", []*discoveryv1.EndpointSlice{slice("a", "10.0.0.1 ready serving terminating", "10.0.0.2 ready serving")}, nil,
			"10.0.0.2:8080", states{Ready: 1, Terminating: 1}},
		{"ready and terminating, alone", []*discoveryv1.EndpointSlice{slice("a", "10.0.0.1 ready serving terminating")}, nil, "10.0.0.1:8080", states{Terminating: 1}},

		{"several slices", []*discoveryv1.EndpointSlice{slice("b", "10.0.0.2"), slice("a", "10.0.0.1")}, nil, "10.0.0.1:8080 10.0.0.2:8080", states{Ready: 2}},
		{"an endpoint in two of them is one", []*discoveryv1.EndpointSlice{slice("a", "10.0.0.1 ready pod=x"), slice("b", "10.0.0.1 ready pod=x")}, nil, "10.0.0.1:8080", states{Ready: 1}},
		{"the slice with terminating is newer", []*discoveryv1.EndpointSlice{slice("a", "10.0.0.1 ready serving pod=x", "10.0.0.2"), slice("b", "10.0.0.1 ready=false serving terminating pod=x")}, nil,
			"10.0.0.2:8080", states{Ready: 1, Terminating: 1}},
		{"of two that differ beyond that, ready is tried", []*discoveryv1.EndpointSlice{slice("a", "10.0.0.1 ready=false serving=false pod=x"), slice("b", "10.0.0.1 ready serving pod=x")}, nil,
			"10.0.0.1:8080", states{Ready: 1}},
		{"another pod with the address of one that has gone", []*discoveryv1.EndpointSlice{slice("a", "10.0.0.1 ready=false serving=false terminating pod=x"), slice("b", "10.0.0.1 ready serving pod=y")}, nil,
			"10.0.0.1:8080", states{Ready: 1}},

		{"a slice without ports", []*discoveryv1.EndpointSlice{with(slice("a", "10.0.0.1"), func(s *discoveryv1.EndpointSlice) { s.Ports = nil })}, nil, "", states{}},
		{"a port without a number", []*discoveryv1.EndpointSlice{with(slice("a", "10.0.0.1"), func(s *discoveryv1.EndpointSlice) { s.Ports[0].Port = nil })}, nil, "", states{}},
		{"another port in the slice", []*discoveryv1.EndpointSlice{with(slice("a", "10.0.0.1"), func(s *discoveryv1.EndpointSlice) { s.Ports = append(s.Ports, port("metrics", 9090)) })}, nil, "10.0.0.1:8080", states{Ready: 1}},
		{"the port by UDP", []*discoveryv1.EndpointSlice{with(slice("a", "10.0.0.1"), func(s *discoveryv1.EndpointSlice) { s.Ports[0].Protocol = new(corev1.ProtocolUDP) })}, nil, "", states{}},
		{"without a protocol", []*discoveryv1.EndpointSlice{with(slice("a", "10.0.0.1"), func(s *discoveryv1.EndpointSlice) { s.Ports[0].Protocol = nil })}, nil, "10.0.0.1:8080", states{Ready: 1}},
		{"a named container port: another number in each slice", []*discoveryv1.EndpointSlice{slice("a", "10.0.0.1"), with(slice("b", "10.0.0.2"), func(s *discoveryv1.EndpointSlice) { s.Ports[0].Port = new(int32(9000)) })}, nil,
			"10.0.0.1:8080 10.0.0.2:9000", states{Ready: 2}},
		{"an endpoint without addresses", []*discoveryv1.EndpointSlice{with(slice("a", "10.0.0.1"), func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses = nil })}, nil, "", states{}},
		{"several addresses mean one endpoint", []*discoveryv1.EndpointSlice{slice("a", "10.0.0.1,10.0.0.9")}, nil, "10.0.0.1:8080", states{Ready: 1}},
		{"names", []*discoveryv1.EndpointSlice{with(slice("a", "db.example"), func(s *discoveryv1.EndpointSlice) { s.AddressType = discoveryv1.AddressTypeFQDN })}, nil, "", states{}},

		{"IPv6", []*discoveryv1.EndpointSlice{slice("a", "2001:db8::1")}, []corev1.IPFamily{v6}, "[2001:db8::1]:8080", states{Ready: 1}},
		{"dual-stack: the Service's first family", []*discoveryv1.EndpointSlice{slice("a", "10.0.0.1"), slice("b", "2001:db8::1")}, []corev1.IPFamily{v6, v4}, "[2001:db8::1]:8080", states{Ready: 1}},
		{"dual-stack, the other way round", []*discoveryv1.EndpointSlice{slice("a", "10.0.0.1"), slice("b", "2001:db8::1")}, []corev1.IPFamily{v4, v6}, "10.0.0.1:8080", states{Ready: 1}},
		{"dual-stack: the other family when the first has none", []*discoveryv1.EndpointSlice{slice("a", "10.0.0.1 ready=false serving terminating"), slice("b", "2001:db8::1 ready")}, []corev1.IPFamily{v4, v6},
			"[2001:db8::1]:8080", states{Ready: 1, Terminating: 1}},
		{"a family that the Service does not name", []*discoveryv1.EndpointSlice{slice("a", "2001:db8::1")}, []corev1.IPFamily{v4}, "[2001:db8::1]:8080", states{Ready: 1}},
		{"nothing", nil, nil, "", states{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for range 3 { // in whatever order they come
				rand.Shuffle(len(tt.slices), func(i, j int) { tt.slices[i], tt.slices[j] = tt.slices[j], tt.slices[i] })
				got, states := resolve(tt.slices, "http", tt.families)
				if strings.Join(got, " ") != tt.want || states != tt.states {
					t.Errorf("%q %+v, want %q %+v", got, states, tt.want, tt.states)
				}
			}
		})
	}
}

func TestServicePorts(t *testing.T) {
	s := &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{
		{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP}, {Name: "http", Port: 80}, {Name: "web", Port: 53, Protocol: corev1.ProtocolTCP},
	}}}
	for _, tt := range []struct {
		want Port
		name string
		ok   bool
	}{
		{Port{Number: 80}, "http", true}, {Port{Name: "http"}, "http", true},
		{Port{Number: 53}, "web", true}, // not the UDP one
		{Port{Name: "dns"}, "", false}, {Port{Number: 81}, "", false}, {Port{Name: "https"}, "", false},
	} {
		if p, ok := portOf(s, tt.want); ok != tt.ok || p.Name != tt.name {
			t.Errorf("%v: %q %v, want %q %v", tt.want, p.Name, ok, tt.name, tt.ok)
		}
	}
}

func TestProtocols(t *testing.T) {
	said := func(protocol string) *string { return &protocol }
	for _, tt := range []struct {
		port corev1.ServicePort
		want gateway.Protocol
	}{
		{corev1.ServicePort{Name: "http"}, gateway.HTTP1}, {corev1.ServicePort{}, gateway.HTTP1},
		{corev1.ServicePort{Name: "grpc"}, gateway.H2C}, {corev1.ServicePort{Name: "grpc-shop"}, gateway.H2C},
		{corev1.ServicePort{Name: "http2"}, gateway.H2C}, {corev1.ServicePort{Name: "http2-shop"}, gateway.H2C},
		{corev1.ServicePort{Name: "grpc-web"}, gateway.HTTP1}, {corev1.ServicePort{Name: "grpc-web-shop"}, gateway.HTTP1},
		{corev1.ServicePort{Name: "grpcs"}, gateway.HTTP1}, {corev1.ServicePort{Name: "http-grpc"}, gateway.HTTP1},
		{corev1.ServicePort{AppProtocol: said("kubernetes.io/h2c")}, gateway.H2C},
		{corev1.ServicePort{AppProtocol: said("kubernetes.io/ws"), Name: "grpc"}, gateway.HTTP1}, // it says more than the name
		{corev1.ServicePort{AppProtocol: said("GRPC")}, gateway.H2C}, {corev1.ServicePort{AppProtocol: said("grpc-web")}, gateway.HTTP1},
		{corev1.ServicePort{AppProtocol: said("http"), Name: "grpc"}, gateway.HTTP1},
	} {
		if got := protocolOf(tt.port); got != tt.want {
			t.Errorf("%q %v: %v, want %v", tt.port.Name, deref(tt.port.AppProtocol, ""), got, tt.want)
		}
	}
}

// thousand is a Service of 1,000 pods in slices of 100.
func thousand() []*discoveryv1.EndpointSlice {
	var all []*discoveryv1.EndpointSlice
	for i := range 10 {
		s := slice(fmt.Sprint("s", i))
		for j := range 100 {
			s.Endpoints = append(s.Endpoints, endpoint(fmt.Sprintf("10.0.%d.%d ready serving terminating=false pod=%d", i, j, 100*i+j)))
		}
		all = append(all, s)
	}
	return all
}

// What one event costs when a Service has 1,000 endpoints.
func BenchmarkEndpoints(b *testing.B) {
	all := thousand()
	g, err := gateway.New(gateway.Options{})
	if err != nil {
		b.Fatal(err)
	}
	pool := g.NewPool("default/web/http")
	for i := 0; b.Loop(); i++ {
		all[i%10].Endpoints[i%100].Conditions.Ready = new(i%2 == 0)
		addrs, states := resolve(all, "http", nil)
		pool.Replace(addrs, gateway.HTTP1, states)
	}
	if n := len(pool.Addrs()); n < 100 || !slices.IsSorted(pool.Addrs()) {
		b.Fatal(n)
	}
}
