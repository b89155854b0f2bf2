package capture

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/lastcall-dev/lastcall/internal/sidecar/istio"
)

// Setting is one setting of the capture.
type Setting struct {
	Flag  string // of lastcall capture
	Short string // istio-init's
	Istio string // istio-init's long name, if different

	Annotations []string // of the pod for the same setting; the first one takes precedence
	Default     string
	Help        string // names the kind of value in back quotes

	set func(*Config, string) error
}

// Settings are all settings, in the order of a manual.
var Settings = []Setting{
	{
		Flag: "include-inbound-ports", Short: "b", Istio: "istio-inbound-ports", Default: "*",
		Annotations: []string{"traffic.sidecar.istio.io/includeInboundPorts"},
		Help:        "`ports` that are captured inbound; * is all, an empty list none",
		set:         setTo(some(acceptsPorts, port), func(c *Config) *Some[uint16] { return &c.IncludeInbound }),
	}, {
		Flag: "exclude-inbound-ports", Short: "d", Istio: "istio-local-exclude-ports",
		Annotations: []string{"traffic.sidecar.istio.io/excludeInboundPorts"},
		Help:        "`ports` that are not captured inbound",
		set:         setTo(ports, func(c *Config) *[]uint16 { return &c.ExcludeInbound }),
	}, {
		Flag: "include-outbound-ranges", Short: "i", Istio: "istio-service-cidr", Default: "*",
		Annotations: []string{"traffic.sidecar.istio.io/includeOutboundIPRanges"},
		Help:        "`ranges` of addresses to which outbound is captured; * is all, an empty list none",
		set:         setTo(some(acceptsRanges, prefix), func(c *Config) *Some[netip.Prefix] { return &c.IncludeRanges }),
	}, {
		Flag: "exclude-outbound-ranges", Short: "x", Istio: "istio-service-exclude-cidr",
		Annotations: []string{"traffic.sidecar.istio.io/excludeOutboundIPRanges"},
		Help:        "`ranges` of addresses to which outbound is not captured",
		set:         setTo(ranges, func(c *Config) *[]netip.Prefix { return &c.ExcludeRanges }),
	}, {
		Flag: "include-outbound-ports", Short: "q", Istio: "istio-outbound-ports",
		Annotations: []string{"traffic.sidecar.istio.io/includeOutboundPorts"},
		Help:        "`ports` to which outbound is captured whatever the address, if it is not excluded",
		set:         setTo(ports, func(c *Config) *[]uint16 { return &c.IncludeOutboundPorts }),
	}, {
		Flag: "exclude-outbound-ports", Short: "o", Istio: "istio-local-outbound-ports-exclude",
		Annotations: []string{"traffic.sidecar.istio.io/excludeOutboundPorts"},
		Help:        "`ports` to which outbound is not captured",
		set:         setTo(ports, func(c *Config) *[]uint16 { return &c.ExcludeOutboundPorts }),
	}, {
		Flag: "exclude-interfaces", Short: "c", Istio: "istio-exclude-interfaces",
		Annotations: []string{"traffic.sidecar.istio.io/excludeInterfaces"},
		Help:        "`interfaces` by which nothing is captured",
		set:         setTo(interfaces, func(c *Config) *[]string { return &c.ExcludeInterfaces }),
	}, {
		Flag: "virtual-interfaces", Short: "k", Istio: "kube-virt-interfaces",
		Annotations: []string{"istio.io/reroute-virtual-interfaces", "traffic.sidecar.istio.io/kubevirtInterfaces"},
		Help:        "`interfaces` of virtual machines in the pod: their packets are captured as outbound",
		set:         setTo(interfaces, func(c *Config) *[]string { return &c.VirtualInterfaces }),
	}, {
		Flag: "mode", Short: "m", Istio: "istio-inbound-interception-mode", Default: "REDIRECT",
		Annotations: []string{"sidecar.istio.io/interceptionMode"},
		Help:        "`REDIRECT`, or NONE to capture nothing",
		set: func(c *Config, text string) error {
			if text != "REDIRECT" && text != "NONE" && text != "" {
				return wrong(acceptsMode, text)
			}
			c.Off = text == "NONE"
			return nil
		},
	}, {
		Flag: "inbound-port", Short: "z", Istio: "inbound-capture-port", Default: strconv.Itoa(istio.InboundPort),
		Help: "`port` at which the agent takes inbound",
		set:  setTo(onePort, func(c *Config) *uint16 { return &c.InboundPort }),
	}, {
		Flag: "outbound-port", Short: "p", Istio: "envoy-port", Default: strconv.Itoa(istio.OutboundPort),
		Help: "`port` at which the agent takes outbound",
		set:  setTo(onePort, func(c *Config) *uint16 { return &c.OutboundPort }),
	}, {
		Flag: "proxy-uid", Short: "u", Default: strconv.Itoa(istio.ProxyID),
		Help: "`users` the agent runs as; what they send is never captured",
		set:  setTo(ids, func(c *Config) *[]uint32 { return &c.UIDs }),
	}, {
		Flag: "proxy-gid", Short: "g",
		Help: "`groups` the agent runs as; what they send is never captured (default as --proxy-uid)",
		set: func(c *Config, text string) (err error) {
			if text == "" {
				c.GIDs = c.UIDs
				return nil
			}
			c.GIDs, err = ids(text)
			return err
		},
	},
}

// annotationStatusPort is the status port for Istio's injector, which is not captured either.
const annotationStatusPort = "status.sidecar.istio.io/port"

// Input is the configuration.
type Input struct {
	Flags       map[string]string // those that were set, by name; a flag takes precedence over an annotation
	Annotations map[string]string // of the pod, all of them
	OwnPorts    []uint16          // the agent's other listeners
}

// Resolve makes a Config. The error reports all problems at once.
func Resolve(in Input) (Config, error) {
	c := Config{OwnPorts: in.OwnPorts}
	var errs []error
	for _, s := range Settings {
		text, where := s.Default, "default of --"+s.Flag
		for _, name := range s.Annotations {
			if value, isSet := in.Annotations[name]; isSet {
				text, where = value, "annotation "+name
				break
			}
		}
		if value, isSet := in.Flags[s.Flag]; isSet {
			text, where = value, "--"+s.Flag
		}
		if err := s.set(&c, strings.TrimSpace(text)); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", where, err))
		}
	}
	if value, set := in.Annotations[annotationStatusPort]; set && value != "0" { // 0: Istio's, no probe at all
		own, err := onePort(value)
		if err != nil {
			errs = append(errs, fmt.Errorf("annotation %s: %w", annotationStatusPort, err))
		}
		c.OwnPorts = append(c.OwnPorts, own)
	}
	if len(errs) == 0 && c.InboundPort == c.OutboundPort {
		errs = append(errs, fmt.Errorf("--inbound-port and --outbound-port are both %d: must be different, since they distinguish inbound from outbound", c.InboundPort))
	}
	return c, errors.Join(errs...)
}

func onePort(text string) (uint16, error) {
	p, err := port(text)
	if err != nil {
		return 0, wrong(acceptsPort, text)
	}
	return p, nil
}

// setTo parses a value and stores it.
func setTo[T any](parse func(string) (T, error), field func(*Config) *T) func(*Config, string) error {
	return func(c *Config, text string) (err error) {
		*field(c), err = parse(text)
		return err
	}
}
