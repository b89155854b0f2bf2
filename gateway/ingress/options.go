package ingress

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lastcall-dev/lastcall/gateway"
)

// Defaults.
const (
	DefaultClass      = "lastcall"
	DefaultController = "lastcall.dev/gateway"
)

// Options of a Follower.
type Options struct {
	API     API
	Gateway *gateway.Gateway

	// Certificates is filled from Secrets; nil when there is no TLS, and no Secret is
	// looked at then.
	Certificates *gateway.Certificates

	// Fallback is the certificate for names that no Ingress has one for; nil for none.
	Fallback gateway.Fallback

	// DefaultSecret is one in the cluster, in its place; its name is empty for none.
	DefaultSecret types.NamespacedName

	// Service leads everything to one Service, and no Ingress is looked at; its name is
	// empty for Ingresses.
	Service Service

	// Class and Controller say which Ingresses are ours: those whose IngressClass has
	// the Controller, or whose class has the name Class and does not exist as an object.
	Class, Controller string

	// Namespace bounds what is looked at; empty for all namespaces.
	Namespace string

	// PublishAddress is written into the status of our Ingresses, an IP address or a host
	// name; empty for nothing.
	PublishAddress string

	Log *slog.Logger
}

// Service is a port of a Service.
type Service struct {
	types.NamespacedName
	Port Port
}

// Port is a port of a Service by its name, or by its number when that is empty.
type Port struct {
	Name   string
	Number int32
}

func (p Port) String() string {
	return cmp.Or(p.Name, strconv.Itoa(int(p.Number)))
}

// ParseService reads NAMESPACE/NAME:PORT.
func ParseService(text string) (Service, error) {
	name, port, ok := strings.Cut(text, ":")
	full, err := ParseName(name)
	if !ok || port == "" || err != nil {
		return Service{}, fmt.Errorf("service %q: accepted is NAMESPACE/NAME:PORT, the port of the Service by number or name", text)
	}
	s := Service{NamespacedName: full, Port: Port{Name: port}}
	if n, err := strconv.ParseInt(port, 10, 32); err == nil {
		if n < 1 || n > 65535 {
			return Service{}, fmt.Errorf("service %q: accepted is a port from 1 to 65535", text)
		}
		s.Port = Port{Number: int32(n)}
	}
	return s, nil
}

// ParseName reads NAMESPACE/NAME.
func ParseName(text string) (types.NamespacedName, error) {
	namespace, name, ok := strings.Cut(text, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return types.NamespacedName{}, fmt.Errorf("%q: accepted is NAMESPACE/NAME", text)
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, nil
}

// check fills in what was left out.
func (o *Options) check() error {
	o.Class, o.Controller = cmp.Or(o.Class, DefaultClass), cmp.Or(o.Controller, DefaultController)
	var errs []error
	if o.Service.Name != "" && o.PublishAddress != "" {
		errs = append(errs, errors.New("an address to publish is for Ingresses, and there are none with a Service alone"))
	}
	if a := o.PublishAddress; a != "" && net.ParseIP(a) == nil && strings.ContainsAny(a, ":/ ") {
		errs = append(errs, fmt.Errorf("address to publish %q: accepted is an IP address or a host name, without a port", a))
	}
	if o.Fallback != nil && o.DefaultSecret.Name != "" {
		errs = append(errs, errors.New("the default certificate is given as files and as a Secret: accepted is one of them"))
	}
	if s := o.DefaultSecret; s.Name != "" && o.namespace() != "" && s.Namespace != o.namespace() {
		errs = append(errs, fmt.Errorf("the default certificate %s lies outside of namespace %s, which is all that is looked at", s, o.namespace()))
	}
	return errors.Join(errs...)
}

// namespace is all that is looked at; empty for all.
func (o *Options) namespace() string {
	if o.Service.Name != "" {
		return o.Service.Namespace
	}
	return o.Namespace
}
