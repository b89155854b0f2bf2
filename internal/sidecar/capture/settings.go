package capture

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/istio"
	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
	"github.com/lastcall-dev/lastcall/internal/timers"
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
		Flag: "include-outbound-ranges", Short: "i", Istio: "istio-service-cidr",
		Annotations: []string{"traffic.sidecar.istio.io/includeOutboundIPRanges"},
		Help:        "`ranges` of addresses to which outbound is captured; * is all, an empty list (default) none",
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
		Flag: "restart-wait", Annotations: []string{"lastcall.dev/restart-wait"},
		Default: timers.DefaultRestartWait.String(),
		Help: "`time` since its latest connection for which a port without a listener is captured: " +
			"its app may restart",
		set: func(c *Config, text string) (err error) {
			if c.RestartWait, err = time.ParseDuration(text); err != nil || c.RestartWait < 0 {
				return wrong(acceptsTime, text)
			}
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
		errs = append(errs, fmt.Errorf("--inbound-port and --outbound-port are both %d: must be different, "+
			"since they distinguish inbound from outbound", c.InboundPort))
	}
	return c, errors.Join(errs...)
}

// setTo parses a value and stores it.
func setTo[T any](parse func(string) (T, error), field func(*Config) *T) func(*Config, string) error {
	return func(c *Config, text string) (err error) {
		*field(c), err = parse(text)
		return err
	}
}

// The valid values of the settings.
const (
	acceptsTime   = "a time such as 10s, 0 or more"
	acceptsPort   = "a port, 1 to 65535"
	acceptsPorts  = "ports, 1 to 65535, separated by commas"
	acceptsRanges = "ranges of addresses such as 10.0.0.0/8 or fd00::/8, separated by commas"
	acceptsIDs    = "numbers of users or groups, 0 to 4294967294, at least one, separated by commas"
	acceptsNames  = "names of interfaces, up to 15 letters each and no wildcard, separated by commas"
	acceptsMode   = "REDIRECT, or NONE to capture nothing (there is no TPROXY here)"
)

// wrong is the error for invalid values.
func wrong(accepts string, items ...string) error {
	var quoted []string
	for _, item := range items {
		quoted = append(quoted, strconv.Quote(terminal.Shorten(item, 80)))
	}
	return fmt.Errorf("%s: must be %s", strings.Join(quoted, ", "), accepts)
}

// list parses the items between commas, and reports all invalid ones. Blanks and empty items, which templates leave,
// are skipped.
func list[T any](text, accepts string, one func(string) (T, error)) ([]T, error) {
	var out []T
	var bad []string
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		if v, err := one(item); err != nil {
			bad = append(bad, item)
		} else {
			out = append(out, v)
		}
	}
	if len(bad) > 0 {
		return nil, wrong(accepts, bad...)
	}
	return out, nil
}

func port(text string) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err == nil && n == 0 {
		err = strconv.ErrRange
	}
	return uint16(n), err
}

func onePort(text string) (p uint16, err error) {
	if p, err = port(text); err != nil {
		err = wrong(acceptsPort, text)
	}
	return p, err
}

func ports(text string) ([]uint16, error) { return list(text, acceptsPorts, port) }

// prefix also accepts a single address, for which Istio needs a /32.
func prefix(text string) (netip.Prefix, error) {
	if !strings.Contains(text, "/") {
		address, err := netip.ParseAddr(text)
		if err != nil {
			return netip.Prefix{}, err
		}
		if address.Zone() != "" || address.Is4In6() {
			return netip.Prefix{}, strconv.ErrSyntax
		}
		return address.Prefix(address.BitLen())
	}
	p, err := netip.ParsePrefix(text)
	if err == nil && p.Addr().Is4In6() {
		err = strconv.ErrSyntax // no packet has such an address: IPv4 was meant
	}
	return p.Masked(), err
}

func ranges(text string) ([]netip.Prefix, error) { return list(text, acceptsRanges, prefix) }

// some parses a list, or * for all values.
func some[T any](accepts string, one func(string) (T, error)) func(string) (Some[T], error) {
	return func(text string) (Some[T], error) {
		if strings.TrimSpace(text) == "*" {
			return Some[T]{All: true}, nil
		}
		values, err := list(text, "*, or "+accepts, one)
		return Some[T]{List: values}, err
	}
}

// ids are never empty: without the proxy's user, its own connections would be captured again, without end.
func ids(text string) ([]uint32, error) {
	some, err := list(text, acceptsIDs, func(item string) (uint32, error) {
		n, err := strconv.ParseUint(item, 10, 32)
		if err == nil && uint32(n) == ^uint32(0) {
			err = strconv.ErrRange // (uid_t)-1 means no user
		}
		return uint32(n), err
	})
	if err == nil && len(some) == 0 {
		err = wrong(acceptsIDs, text)
	}
	return some, err
}

// interfaces have names of up to IFNAMSIZ-1 bytes (dev_valid_name). A wildcard would be part of the name, and match
// nothing.
func interfaces(text string) ([]string, error) {
	return list(text, acceptsNames, func(name string) (string, error) {
		if len(name) > 15 || name == "." || name == ".." || strings.ContainsAny(name, "/:*\"\\ \t\n\v\f\r\x00") ||
			strings.HasSuffix(name, "+") {
			return "", strconv.ErrSyntax
		}
		return name, nil
	})
}
