package capture

import (
	"net/netip"
	"slices"
)

// Name is that of both tables.
const Name = "lastcall"

// table is what is captured in one family.
type table struct {
	family family
	chains []chain
}

// chain is a list of rules; hook is empty for one that others jump to.
type chain struct {
	name  string
	hook  hook
	rules []rule
}

type hook string

const (
	prerouting hook = "prerouting" // what comes in, before it is routed
	output     hook = "output"     // what is made here
)

// rule does something with the connections that match in every way.
type rule struct {
	matches []match
	do      verdict
}

// verdict is one of: redirect to a port, jump to a chain, else return.
type verdict struct {
	redirect uint16
	jump     string
}

// The chains. Only a connection's first packet passes through them (NAT), and what goes by loopback only through output:
// its way is settled when it comes in again.
const (
	chainInbound      = "inbound"
	chainOutbound     = "outbound"
	chainDestinations = "destinations"
)

var (
	loopback = map[family]netip.Prefix{ipv4: netip.MustParsePrefix("127.0.0.1/32"), ipv6: netip.MustParsePrefix("::1/128")}
	// source is from where Istio's proxy, and lastcall's pipe, call the app.
	source = map[family]netip.Prefix{ipv4: netip.MustParsePrefix("127.0.0.6/32"), ipv6: netip.MustParsePrefix("::6/128")}
)

// rules are what c means in one family.
func (c *Config) rules(f family) table {
	t := table{family: f}
	if c.Off {
		return t
	}
	t.chains = []chain{
		// The one that is jumped to comes first: it must be there when another names it.
		{chainDestinations, "", split(c.destinations(f))},
		{chainInbound, prerouting, split(c.inbound())},
		{chainOutbound, output, split(c.outbound(f))},
	}
	return t
}

// inbound is for what comes in by any interface.
func (c *Config) inbound() []rule {
	var rules []rule
	for _, name := range c.VirtualInterfaces {
		from := matchInterface("iifname", name)
		rules = append(rules,
			rule{[]match{from}, verdict{jump: chainDestinations}},
			rule{[]match{from}, verdict{}})
	}
	// What came by loopback has passed output; here it is only seen when something else has loosened that.
	rules = append(rules, rule{[]match{matchInterface("iifname", "lo")}, verdict{}})
	for _, name := range c.ExcludeInterfaces {
		rules = append(rules, rule{[]match{matchInterface("iifname", name)}, verdict{}})
	}
	rules = append(rules, rule{[]match{matchPorts(c.never())}, verdict{}})
	if len(c.ExcludeInbound) > 0 {
		rules = append(rules, rule{[]match{matchPorts(c.ExcludeInbound)}, verdict{}})
	}
	to := verdict{redirect: c.InboundPort}
	switch {
	case c.IncludeInbound.All:
		rules = append(rules, rule{[]match{matchTCP()}, to})
	case len(c.IncludeInbound.List) > 0:
		rules = append(rules, rule{[]match{matchPorts(c.IncludeInbound.List)}, to})
	}
	return rules
}

// outbound is for what processes of the pod send.
func (c *Config) outbound(f family) []rule {
	var rules []rule
	byLoopback := matchInterface("oifname", "lo")
	for _, name := range c.ExcludeInterfaces {
		rules = append(rules, rule{[]match{matchInterface("oifname", name)}, verdict{}})
	}
	rules = append(rules, rule{[]match{byLoopback, matchAddresses(f, "saddr", []netip.Prefix{source[f]})}, verdict{}})
	for _, id := range c.UIDs {
		rules = append(rules, rule{[]match{matchOwner("skuid", id)}, verdict{}})
	}
	for _, id := range c.GIDs {
		rules = append(rules, rule{[]match{matchOwner("skgid", id)}, verdict{}})
	}
	// As in Istio: who names loopback among the ranges wants what is there captured (127.0.0.2, say), yet never
	// 127.0.0.1 itself.
	if !slices.ContainsFunc(c.IncludeRanges.List, func(r netip.Prefix) bool { return r.Addr().IsLoopback() }) {
		rules = append(rules, rule{[]match{byLoopback}, verdict{}})
	}
	return append(rules,
		rule{[]match{matchAddresses(f, "daddr", []netip.Prefix{loopback[f]})}, verdict{}},
		rule{nil, verdict{jump: chainDestinations}})
}

// destinations is where outbound goes.
func (c *Config) destinations(f family) []rule {
	var rules []rule
	if len(c.ExcludeOutboundPorts) > 0 {
		rules = append(rules, rule{[]match{matchPorts(c.ExcludeOutboundPorts)}, verdict{}})
	}
	if exclude := f.of(c.ExcludeRanges); len(exclude) > 0 {
		rules = append(rules, rule{anywhere(exclude, matchAddresses(f, "daddr", exclude)), verdict{}})
	}
	to := verdict{redirect: c.OutboundPort}
	if len(c.IncludeOutboundPorts) > 0 {
		rules = append(rules, rule{[]match{matchPorts(c.IncludeOutboundPorts)}, to})
	}
	include := f.of(c.IncludeRanges.List)
	switch {
	case c.IncludeRanges.All:
		rules = append(rules, rule{[]match{matchTCP()}, to})
	case len(include) > 0:
		rules = append(rules, rule{append([]match{matchTCP()}, anywhere(include, matchAddresses(f, "daddr", include))...), to})
	}
	return rules
}

// widest is how many values a set may have: all of them go to the kernel as one attribute of at most 64 KiB, and an IPv6
// range takes 64 bytes. (nftables v0.3.0 cuts what is longer, without a word.)
const widest = 500

// split makes several rules of one that asks for more values.
func split(rules []rule) []rule {
	var out []rule
	for _, r := range rules {
		wide := slices.IndexFunc(r.matches, func(m match) bool { return len(m.values) > widest })
		if wide < 0 {
			out = append(out, r)
			continue
		}
		for values := range slices.Chunk(r.matches[wide].values, widest) {
			part := rule{slices.Clone(r.matches), r.do}
			part.matches[wide].values = values
			out = append(out, part)
		}
	}
	return out
}

// anywhere needs no match for a range that holds every address.
func anywhere(ranges []netip.Prefix, m match) []match {
	if ranges[0].Bits() == 0 {
		return nil
	}
	return []match{m}
}
