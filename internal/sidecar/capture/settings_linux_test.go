package capture

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"
)

func resolve(t *testing.T, in Input) Config {
	t.Helper()
	c, err := Resolve(in)
	must.Do(t, err)
	return c
}

func TestDefaults(t *testing.T) {
	want := Config{
		RestartWait: 10 * time.Second, InboundPort: 15006, OutboundPort: 15001,
		UIDs: []uint32{1337}, GIDs: []uint32{1337},
		IncludeInbound: Some[uint16]{All: true}, // nothing outbound
	}
	if got := resolve(t, Input{}); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestSettingsInAllPlaces(t *testing.T) {
	p := netip.MustParsePrefix
	for _, c := range []struct {
		name        string
		flags       map[string]string
		annotations map[string]string
		want        any
		of          func(Config) any
	}{
		{"ports, with a template's blanks and commas", map[string]string{"exclude-inbound-ports": " 15090,15021,, 15020,"}, nil,
			[]uint16{15090, 15021, 15020}, func(c Config) any { return c.ExcludeInbound }},
		{"no port at all", map[string]string{"include-inbound-ports": ""}, nil, Some[uint16]{}, func(c Config) any { return c.IncludeInbound }},
		{"some ports", nil, map[string]string{"traffic.sidecar.istio.io/includeInboundPorts": "80,8080"},
			Some[uint16]{List: []uint16{80, 8080}}, func(c Config) any { return c.IncludeInbound }},
		{"a flag wins over the annotation", map[string]string{"include-inbound-ports": "*"}, map[string]string{"traffic.sidecar.istio.io/includeInboundPorts": "80"},
			Some[uint16]{All: true}, func(c Config) any { return c.IncludeInbound }},
		{"all outbound", nil, map[string]string{"traffic.sidecar.istio.io/includeOutboundIPRanges": "*"},
			Some[netip.Prefix]{All: true}, func(c Config) any { return c.IncludeRanges }},
		{"ranges of both families, and an address", nil, map[string]string{"traffic.sidecar.istio.io/excludeOutboundIPRanges": "10.1.2.3/8,fd00::/8,169.254.169.254"},
			[]netip.Prefix{p("10.0.0.0/8"), p("fd00::/8"), p("169.254.169.254/32")}, func(c Config) any { return c.ExcludeRanges }},
		{"the old annotation for virtual machines", nil, map[string]string{"traffic.sidecar.istio.io/kubevirtInterfaces": "k6t-net1"},
			[]string{"k6t-net1"}, func(c Config) any { return c.VirtualInterfaces }},
		{"and the new one", nil, map[string]string{"istio.io/reroute-virtual-interfaces": "net1", "traffic.sidecar.istio.io/kubevirtInterfaces": "net0"},
			[]string{"net1"}, func(c Config) any { return c.VirtualInterfaces }},
		{"groups follow the users", map[string]string{"proxy-uid": "1337,2000"}, nil, []uint32{1337, 2000}, func(c Config) any { return c.GIDs }},
		{"or go their own way", map[string]string{"proxy-uid": "2000", "proxy-gid": "0"}, nil, []uint32{0}, func(c Config) any { return c.GIDs }},
		{"the injector's status port", nil, map[string]string{"status.sidecar.istio.io/port": "15999"}, []uint16{15999}, func(c Config) any { return c.OwnPorts }},
		{"no status port", nil, map[string]string{"status.sidecar.istio.io/port": "0"}, []uint16(nil), func(c Config) any { return c.OwnPorts }},
		{"nothing at all", nil, map[string]string{"sidecar.istio.io/interceptionMode": "NONE"}, true, func(c Config) any { return c.Off }},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.of(resolve(t, Input{Flags: c.flags, Annotations: c.annotations})); !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestErrorsNameTheSetting(t *testing.T) {
	for _, c := range []struct{ flag, value, want string }{
		{"exclude-inbound-ports", "80,80a,0,65536", `--exclude-inbound-ports: "80a", "0", "65536": must be ports, 1 to 65535, separated by commas`},
		{"exclude-inbound-ports", "*", `--exclude-inbound-ports: "*": must be ports, 1 to 65535, separated by commas`},
		{"include-inbound-ports", "8000-8010", `--include-inbound-ports: "8000-8010": must be *, or ports, 1 to 65535, separated by commas`},
		{"include-outbound-ranges", "10/8,::ffff:10.0.0.1/104,fe80::1%eth0", `--include-outbound-ranges: "10/8", "::ffff:10.0.0.1/104", "fe80::1%eth0": must be *, or ranges of addresses such as 10.0.0.0/8 or fd00::/8, separated by commas`},
		{"exclude-outbound-ranges", "*", `--exclude-outbound-ranges: "*": must be ranges of addresses such as 10.0.0.0/8 or fd00::/8, separated by commas`},
		{"exclude-interfaces", "eth+,sixteen-letters-x", `--exclude-interfaces: "eth+", "sixteen-letters-x": must be names of interfaces, up to 15 letters each and no wildcard, separated by commas`},
		{"mode", "TPROXY", `--mode: "TPROXY": must be REDIRECT, or NONE to capture nothing (there is no TPROXY here)`},
		{"proxy-uid", "", `--proxy-uid: "": must be numbers of users or groups, 0 to 4294967294, at least one, separated by commas`},
		{"proxy-uid", "istio-proxy", `--proxy-uid: "istio-proxy": must be numbers of users or groups, 0 to 4294967294, at least one, separated by commas`},
		{"proxy-gid", "4294967295", `--proxy-gid: "4294967295": must be numbers of users or groups, 0 to 4294967294, at least one, separated by commas`},
		{"inbound-port", "", `--inbound-port: "": must be a port, 1 to 65535`},
		{"outbound-port", "15006", `--inbound-port and --outbound-port are both 15006: must be different, since they distinguish inbound from outbound`},
	} {
		t.Run(c.flag+" "+c.value, func(t *testing.T) {
			_, err := Resolve(Input{Flags: map[string]string{c.flag: c.value}})
			if err == nil || err.Error() != c.want {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
	t.Run("all at once, with the place", func(t *testing.T) {
		_, err := Resolve(Input{
			Flags: map[string]string{"outbound-port": "x"},
			Annotations: map[string]string{
				"traffic.sidecar.istio.io/excludeOutboundPorts": "http",
				"status.sidecar.istio.io/port":                  "status",
			},
		})
		if err == nil || strings.Count(err.Error(), "\n") != 2 ||
			!strings.Contains(err.Error(), `annotation traffic.sidecar.istio.io/excludeOutboundPorts: "http": must be`) {
			t.Errorf("got %v", err)
		}
	})
}

func FuzzResolve(f *testing.F) {
	f.Add("*", "80,81", "10.0.0.0/8,fd00::/8", "eth1", "1337")
	f.Add("", "0", "0.0.0.0/0,::/0", "\"", "-1")
	f.Fuzz(func(t *testing.T, all, ports, ranges, interfaces, users string) {
		c, err := Resolve(Input{Flags: map[string]string{
			"include-inbound-ports": all, "include-outbound-ranges": all, "exclude-inbound-ports": ports, "include-outbound-ports": ports,
			"exclude-outbound-ranges": ranges, "exclude-interfaces": interfaces, "virtual-interfaces": interfaces, "proxy-uid": users,
		}})
		if err != nil {
			return
		}
		if len(c.UIDs) == 0 || len(c.GIDs) == 0 {
			t.Fatalf("the proxy is nobody: %+v", c)
		}
		for _, f := range []family{ipv4, ipv6} {
			var b strings.Builder
			c.rules(f).write(&b)
			for _, never := range []string{"meta skuid ", "meta skgid ", "tcp dport { 15000, 15001,"} {
				if !strings.Contains(b.String(), never) {
					t.Errorf("%v: no rule %q in\n%s", f, never, &b)
				}
			}
		}
	})
}
