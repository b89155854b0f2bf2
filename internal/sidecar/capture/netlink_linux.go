package capture

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// responseTime is how long the kernel may take for a transaction: it may have to load modules. A missing nf_tables
// responds only once, where the library waits for a response to each message.
const responseTime = 10 * time.Second

// Buffer sizes for a transaction, which is sent as a whole, and for the responses to all of its messages, which arrive
// at once, in bytes. Annotations are 256 KiB at most; as rules they may be five times as large.
const (
	transactionBuffer = 2 << 20
	answerBuffer      = 1 << 20
)

// Install installs c in the network namespace of the calling thread, and replaces an earlier Install. If it fails,
// nothing has changed. It refuses the machine's own namespace unless c allows it.
func Install(c Config) error {
	if onMachine() && !c.WholeMachine {
		return fmt.Errorf("install the capture: %w", errMachine)
	}
	if err := transact(c); err != nil {
		return fmt.Errorf("install the capture: %w", err)
	}
	return nil
}

// errMachine prevents that a mistake cuts a whole machine off.
var errMachine = errors.New("this is not a pod but the machine's own network namespace: " +
	"all of its traffic would be captured; if intended, set --whole-machine")

// onMachine reports whether the calling thread is in the kernel's initial namespace. Process 2, whose children are the
// kernel's threads, never leaves it; a container with processes of its own does not see it.
func onMachine() bool {
	name, err := os.ReadFile("/proc/2/comm")
	if err != nil || !bytes.Equal(name, []byte("kthreadd\n")) {
		return false
	}
	first, err := os.Stat("/proc/2/ns/net")
	if err != nil {
		return false
	}
	ours, err := os.Stat("/proc/thread-self/ns/net")
	return err == nil && os.SameFile(first, ours)
}

// Remove removes everything that Install installed. A missing capture is not an error. Connections that are captured
// at this time break if these were the namespace's only NAT rules: the kernel then stops translating addresses.
func Remove() error {
	if err := transact(Config{Off: true}); err != nil {
		return fmt.Errorf("remove the capture: %w", err)
	}
	return nil
}

// families are those that can be captured: without IPv6 (ipv6.disable=1) there is nothing to capture, and no table for
// it. Where loopback alone has none, the sidecar cannot reach the app by its IPv6 address: clients reach it directly.
func families() []family {
	_, err := os.Stat("/proc/thread-self/net/if_inet6")
	off, _ := os.ReadFile("/proc/sys/net/ipv6/conf/lo/disable_ipv6")
	if err != nil || strings.TrimSpace(string(off)) == "1" {
		return []family{ipv4}
	}
	return []family{ipv4, ipv6}
}

func transact(c Config) error {
	conn, err := nftables.New(nftables.WithSockOptions(func(conn *netlink.Conn) error {
		// Otherwise the system's default, which is enough for all but the longest lists.
		_, _ = conn.SetReadBuffer(answerBuffer), conn.SetWriteBuffer(transactionBuffer)
		return conn.SetReadDeadline(time.Now().Add(responseTime))
	}))
	if err != nil {
		return explain(err)
	}
	if _, err := conn.ListTables(); err != nil {
		return explain(err) // a single message has a single response, even without nf_tables
	}
	for _, f := range families() {
		if err := c.rules(f).add(conn); err != nil {
			return err
		}
		// The routes have no effect without the rules, which Flush sets: if this fails, nothing has changed.
		if err := f.routeSources(!c.Off); err != nil {
			return err
		}
	}
	switch err := conn.Flush(); {
	case errors.Is(err, unix.ENOENT) && !c.anyPort: // a kernel without nft_socket
		c.anyPort = true
		return transact(c)
	case err != nil:
		return explain(err)
	}
	return nil
}

// add adds the table to the transaction, as rules_linux.go writes it.
func (t table) add(conn *nftables.Conn) error {
	to := &nftables.Table{Name: Name, Family: nftables.TableFamilyIPv4}
	if t.family == ipv6 {
		to.Family = nftables.TableFamilyIPv6
	}
	conn.AddTable(to)
	conn.DelTable(to)
	if len(t.chains) == 0 {
		return nil
	}
	conn.AddTable(to)
	if t.served > 0 {
		set := &nftables.Set{Table: to, Name: served, KeyType: nftables.TypeInetService, Dynamic: true, HasTimeout: true,
			Timeout: t.served, Size: maxServed}
		if err := conn.AddSet(set, nil); err != nil {
			return err
		}
	}
	policy := nftables.ChainPolicyAccept
	var chains []*nftables.Chain
	for _, c := range t.chains {
		chain := &nftables.Chain{Name: c.name, Table: to}
		if c.hook != "" {
			chain.Type, chain.Policy, chain.Priority = nftables.ChainTypeNAT, &policy, nftables.ChainPriorityNATDest
			chain.Hooknum = nftables.ChainHookPrerouting
			if c.hook == output {
				chain.Hooknum = nftables.ChainHookOutput
			}
		}
		chains = append(chains, conn.AddChain(chain))
	}
	for i, c := range t.chains {
		for _, r := range c.rules {
			expressions, err := r.expressions(conn, to)
			if err != nil {
				return fmt.Errorf("rule %v: %w", r, err)
			}
			conn.AddRule(&nftables.Rule{Table: to, Chain: chains[i], Exprs: expressions})
		}
	}
	return nil
}

func (r rule) expressions(conn *nftables.Conn, t *nftables.Table) ([]expr.Any, error) {
	var out []expr.Any
	for _, m := range r.matches {
		out = append(out, m.load...)
		if m.set != "" {
			out = append(out, &expr.Lookup{SourceRegister: register, SetName: m.set})
			continue
		}
		if len(m.values) == 1 {
			out = append(out, m.values[0].compare(m.op)...)
			continue
		}
		set := &nftables.Set{Table: t, Anonymous: true, Constant: true, KeyType: m.kind}
		elements := m.elements()
		set.Interval = m.values[0].mask != nil
		if err := conn.AddSet(set, elements); err != nil {
			return nil, err
		}
		out = append(out, &expr.Lookup{SourceRegister: register, SetName: set.Name, SetID: set.ID})
	}
	return append(out, r.do.expressions()...), nil
}

// compare is for a single value.
func (v value) compare(op expr.CmpOp) []expr.Any {
	var out []expr.Any
	if bytes.Count(v.mask, []byte{0xff}) < len(v.mask) {
		out = append(out, &expr.Bitwise{
			SourceRegister: register, DestRegister: register,
			Len: uint32(len(v.mask)), Mask: v.mask, Xor: make([]byte, len(v.mask)),
		})
	}
	return append(out, &expr.Cmp{Op: op, Register: register, Data: v.data})
}

// elements are the values in a set's form: for a range, its first value and the first after it.
func (m match) elements() []nftables.SetElement {
	var out []nftables.SetElement
	for _, v := range m.values {
		out = append(out, nftables.SetElement{Key: v.data})
		if v.next != nil {
			out = append(out, nftables.SetElement{Key: v.next, IntervalEnd: true})
		}
	}
	return out
}

func (v verdict) expressions() []expr.Any {
	switch {
	case v.redirect != 0:
		return []expr.Any{
			&expr.Immediate{Register: register, Data: []byte{byte(v.redirect >> 8), byte(v.redirect)}},
			&expr.Redir{RegisterProtoMin: register},
		}
	case v.jump != "":
		return []expr.Any{&expr.Verdict{Kind: expr.VerdictJump, Chain: v.jump}}
	case v.serves:
		return append(slices.Clone(dport),
			&expr.Dynset{SrcRegKey: register, SetName: served, Operation: unix.NFT_DYNSET_OP_UPDATE})
	}
	return []expr.Any{&expr.Verdict{Kind: expr.VerdictReturn}}
}

// explain adds the meaning of the kernel's error and the remedy.
func explain(err error) error {
	if refusal, ok := errors.AsType[*netlink.OpError](err); ok {
		err = refusal // the first; the library joins one for each message
	}
	switch {
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%w: this needs CAP_NET_ADMIN in the pod's network namespace "+
			"(in Kubernetes securityContext.capabilities.add: [NET_ADMIN]; "+
			"for a user other than 0 the program needs the file capability, too, which a copy of the image may lack)", err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("the kernel's nf_tables did not respond within %v: %w", responseTime, err)
	case errors.Is(err, unix.EMSGSIZE):
		return fmt.Errorf("%w: the lists of ranges and ports must be shorter (a few thousand items fit)", err)
	case errors.Is(err, unix.EPROTONOSUPPORT), errors.Is(err, unix.EAFNOSUPPORT), errors.Is(err, unix.ESOCKTNOSUPPORT),
		errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOENT), errors.Is(err, unix.EINVAL):
		return fmt.Errorf("%w: this kernel has no nf_tables, or no NAT in it: must be Linux 4.18 or later with "+
			"CONFIG_NF_TABLES, CONFIG_NFT_NAT and CONFIG_NFT_REDIR for IPv4 and, unless IPv6 is off, IPv6; where they are "+
			"modules that a container may not load, load nft_chain_nat and nft_redir on the node", err)
	}
	return err
}
