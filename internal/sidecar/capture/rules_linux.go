package capture

import (
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/istio"
)

// Name is the name of both tables.
const Name = "lastcall"

// table is the capture of one family.
type table struct {
	family family
	served time.Duration // how long a port stays in the set of that name; 0 without it
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
	prerouting hook = "prerouting" // inbound packets, before routing
	output     hook = "output"     // packets of this machine
)

// rule is a verdict on the connections that fulfil all matches.
type rule struct {
	matches []match
	do      verdict
}

// verdict is redirect to a port, jump to a chain, add the port to the set of served ones, or return.
type verdict struct {
	redirect uint16
	jump     string
	serves   bool
}

// served is the name of the set of ports to which a client has connected while they had a listener, in the last
// Config.RestartWait. Others are not redirected: the kernel refuses the connection, as it does without a sidecar, and a
// probe or a load balancer sees that the app does not listen. Within that time an app may restart: the sidecar lets its
// clients wait.
const (
	served    = "served"
	maxServed = 1<<16 - 1
)

// The chains. Only a connection's first packet passes through them (NAT), and on loopback that packet passes through
// output only: its destination is settled when it arrives.
const (
	chainInbound      = "inbound"
	chainOutbound     = "outbound"
	chainDestinations = "destinations"
)

var (
	loopback = map[family]netip.Prefix{
		ipv4: netip.MustParsePrefix("127.0.0.1/32"), ipv6: netip.MustParsePrefix("::1/128"),
	}
	linkLocal = netip.MustParsePrefix("fe80::/10")
	// source is the address from which Istio's proxy, and an Envoy of lastcall's, connect to the app.
	source = map[family]netip.Prefix{ipv4: netip.PrefixFrom(istio.Source4, 32), ipv6: netip.PrefixFrom(istio.Source6, 128)}
)

// rules are the rules of c in one family.
func (c *Config) rules(f family) table {
	t := table{family: f}
	if c.Off {
		return t
	}
	if !c.anyPort {
		t.served = max(c.RestartWait.Round(time.Second), time.Second)
	}
	t.chains = []chain{
		// The target of a jump comes first: it must exist when another chain names it.
		{chainDestinations, "", split(c.destinations(f))},
		{chainInbound, prerouting, split(c.inbound(f))},
		{chainOutbound, output, split(c.outbound(f))},
	}
	return t
}

// never are the rules before all others. A connection that is older than the rules continues without them: to NAT, the
// next packet of one that conntrack does not know yet is a first one. Link-local addresses of IPv6 mean nothing without
// the interface, which SO_ORIGINAL_DST lacks.
func (f family) never() []rule {
	rules := []rule{{[]match{matchNoSYN()}, verdict{}}}
	if f == ipv6 {
		rules = append(rules, rule{[]match{matchAddresses(f, "daddr", []netip.Prefix{linkLocal})}, verdict{}})
	}
	return rules
}

// inbound is for packets from an interface.
func (c *Config) inbound(f family) []rule {
	rules := f.never()
	for _, name := range c.VirtualInterfaces {
		from := matchInterface("iifname", name)
		rules = append(rules,
			rule{[]match{from}, verdict{jump: chainDestinations}},
			rule{[]match{from}, verdict{}})
	}
	// Loopback packets have passed output; they are here only if another program has removed that.
	rules = append(rules, rule{[]match{matchInterface("iifname", "lo")}, verdict{}})
	for _, name := range c.ExcludeInterfaces {
		rules = append(rules, rule{[]match{matchInterface("iifname", name)}, verdict{}})
	}
	own := slices.Concat(ownPorts, []uint16{c.InboundPort, c.OutboundPort}, c.OwnPorts)
	rules = append(rules, rule{[]match{matchPorts(own)}, verdict{}})
	if len(c.ExcludeInbound) > 0 {
		rules = append(rules, rule{[]match{matchPorts(c.ExcludeInbound)}, verdict{}})
	}
	var ports []match
	switch {
	case !c.IncludeInbound.All && len(c.IncludeInbound.List) == 0:
		return rules
	case !c.IncludeInbound.All:
		ports = []match{matchPorts(c.IncludeInbound.List)}
	case c.anyPort:
		ports = []match{matchTCP()}
	}
	if !c.anyPort {
		rules = append(rules, rule{append(slices.Clone(ports), matchListener()), verdict{serves: true}})
		ports = append(ports, match{name: "tcp dport", load: dport, set: served})
	}
	return append(rules, rule{ports, verdict{redirect: c.InboundPort}})
}

// outbound is for packets of the pod's processes.
func (c *Config) outbound(f family) []rule {
	rules := f.never()
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
	// As in Istio: loopback among the ranges means that connections there are captured (127.0.0.2, say), yet never to
	// 127.0.0.1 itself.
	if !slices.ContainsFunc(c.IncludeRanges.List, func(r netip.Prefix) bool { return r.Addr().IsLoopback() }) {
		rules = append(rules, rule{[]match{byLoopback}, verdict{}})
	}
	return append(rules,
		rule{[]match{matchAddresses(f, "daddr", []netip.Prefix{loopback[f]})}, verdict{}},
		rule{nil, verdict{jump: chainDestinations}})
}

// destinations selects by destination.
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
		rules = append(rules, rule{append([]match{matchTCP()}, anywhere(include, matchAddresses(f, "daddr", include))...),
			to})
	}
	return rules
}

// widest is the maximum number of values in a set: they reach the kernel as one attribute of at most 64 KiB, and an
// IPv6 range takes 64 bytes. (nftables v0.3.0 silently truncates a longer one.)
const widest = 500

// split makes several rules of one with too many values.
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

// DryRun writes the rules of Install in nft's syntax: `nft -f -` has the same effect, and results in what `nft
// list ruleset` shows after Install. The routes of the sources stand in comments.
func DryRun(w io.Writer, c Config) error {
	var b strings.Builder
	for _, f := range families() {
		c.rules(f).write(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (f family) String() string {
	if f == ipv6 {
		return "ip6"
	}
	return "ip"
}

func (t table) write(b *strings.Builder) {
	// Create it if it is missing, so that deleting it cannot fail, and the next line makes a new one.
	fmt.Fprintf(b, "table %v %s\ndelete table %v %s\n", t.family, Name, t.family, Name)
	if len(t.chains) == 0 {
		return
	}
	fmt.Fprintf(b, "# %s\n", t.family.route())
	fmt.Fprintf(b, "table %v %s {\n", t.family, Name)
	if t.served > 0 {
		fmt.Fprintf(b, "\tset %s {\n\t\ttype inet_service\n\t\tsize %d\n\t\tflags dynamic,timeout\n\t\ttimeout %v\n\t}\n\n",
			served, maxServed, t.served)
	}
	for i, c := range t.chains {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(b, "\tchain %s {\n", c.name)
		switch c.hook {
		case prerouting:
			b.WriteString("\t\ttype nat hook prerouting priority dstnat; policy accept;\n")
		case output:
			b.WriteString("\t\ttype nat hook output priority -100; policy accept;\n")
		}
		for _, r := range c.rules {
			fmt.Fprintf(b, "\t\t%s\n", r)
		}
		b.WriteString("\t}\n")
	}
	b.WriteString("}\n")
}

func (r rule) String() string {
	var words []string
	for _, m := range r.matches {
		words = append(words, m.String())
	}
	return strings.Join(append(words, r.do.String()), " ")
}

func (m match) String() string {
	if m.set != "" {
		return m.name + " @" + m.set
	}
	if len(m.values) == 1 {
		return m.name + " " + m.values[0].text
	}
	var texts []string
	for _, v := range m.values {
		texts = append(texts, v.text)
	}
	return m.name + " { " + strings.Join(texts, ", ") + " }"
}

func (v verdict) String() string {
	switch {
	case v.redirect != 0:
		return fmt.Sprintf("redirect to :%d", v.redirect)
	case v.jump != "":
		return "jump " + v.jump
	case v.serves:
		return "update @" + served + " { tcp dport }"
	}
	return "return"
}
