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

	// Certificates receives the certificates of Secrets. If it is nil, there is no TLS and Secrets are not watched.
	Certificates *gateway.Certificates

	// Fallback is the certificate for names without one in an Ingress, or nil.
	Fallback gateway.Fallback

	// DefaultSecret is a Secret in the place of Fallback, or empty.
	DefaultSecret types.NamespacedName

	// Service, if not empty, receives all requests, and Ingresses are not watched.
	Service Service

	// Class and Controller select the Ingresses: those whose IngressClass has the Controller, or whose class has the
	// name Class and does not exist as an object.
	Class, Controller string

	// Namespace is the only namespace that is watched, or empty for all.
	Namespace string

	// PublishAddress, an IP address or a host name, is written into the status of our Ingresses, unless it is empty.
	PublishAddress string

	Log *slog.Logger
}

// Service is a port of a Service.
type Service struct {
	types.NamespacedName
	Port Port
}

// Port is a port of a Service by its name, or by its number if the name is empty.
type Port struct {
	Name   string
	Number int32
}

func (p Port) String() string {
	return cmp.Or(p.Name, strconv.Itoa(int(p.Number)))
}

// ParseService parses NAMESPACE/NAME:PORT.
func ParseService(text string) (Service, error) {
	name, port, ok := strings.Cut(text, ":")
	full, err := ParseName(name)
	if !ok || port == "" || err != nil {
		return Service{}, fmt.Errorf("service %q: must be NAMESPACE/NAME:PORT, with the port of the Service by number or name", text)
	}
	s := Service{NamespacedName: full, Port: Port{Name: port}}
	if n, err := strconv.ParseInt(port, 10, 32); err == nil {
		if n < 1 || n > 65535 {
			return Service{}, fmt.Errorf("service %q: the port must be from 1 to 65535", text)
		}
		s.Port = Port{Number: int32(n)}
	}
	return s, nil
}

// ParseName parses NAMESPACE/NAME.
func ParseName(text string) (types.NamespacedName, error) {
	namespace, name, ok := strings.Cut(text, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return types.NamespacedName{}, fmt.Errorf("%q: must be NAMESPACE/NAME", text)
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, nil
}

// check sets the defaults and validates.
func (o *Options) check() error {
	o.Class, o.Controller = cmp.Or(o.Class, DefaultClass), cmp.Or(o.Controller, DefaultController)
	var errs []error
	if o.Service.Name != "" && o.PublishAddress != "" {
		errs = append(errs, errors.New("an address to publish needs Ingresses: do not set it together with a Service"))
	}
	if a := o.PublishAddress; a != "" && net.ParseIP(a) == nil && strings.ContainsAny(a, ":/ ") {
		errs = append(errs, fmt.Errorf("address to publish %q: must be an IP address or a host name, without a port", a))
	}
	if o.Fallback != nil && o.DefaultSecret.Name != "" {
		errs = append(errs, errors.New("the default certificate is set as files and as a Secret: use only one of them"))
	}
	if s := o.DefaultSecret; s.Name != "" && o.namespace() != "" && s.Namespace != o.namespace() {
		errs = append(errs, fmt.Errorf("the default certificate %s must be in namespace %s, the only one that is watched", s, o.namespace()))
	}
	return errors.Join(errs...)
}

// namespace returns the only namespace that is watched, or "" for all.
func (o *Options) namespace() string {
	if o.Service.Name != "" {
		return o.Service.Namespace
	}
	return o.Namespace
}
