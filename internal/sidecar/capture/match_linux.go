package capture

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// match is a condition on a connection: a property of it has one of some values.
type match struct {
	name   string               // in nft's syntax
	load   []expr.Any           // loads the property into register
	kind   nftables.SetDatatype // of the values
	values []value              // one is compared, several are a set
	op     expr.CmpOp           // of the only one of values; 0 is equality
	set    string               // the values are those of a named set
}

// value is a value or a range. A range has a mask, and next, the first value above it (nil at the very end).
type value struct {
	text string // in nft's syntax
	data []byte
	mask []byte
	next []byte
}

// register is the register of the comparison: NFT_REG_1, 16 bytes.
const register = unix.NFT_REG_1

var tcp = []expr.Any{
	&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: register},
	&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: []byte{unix.IPPROTO_TCP}},
}

// dport loads TCP's destination port.
var dport = []expr.Any{tcp[0], tcp[1], &expr.Payload{
	DestRegister: register, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2,
}}

func matchTCP() match {
	return match{name: "meta l4proto", load: tcp[:1], values: []value{{text: "tcp", data: []byte{unix.IPPROTO_TCP}}}}
}

// matchNoSYN matches all packets of TCP but a connection's first one.
func matchNoSYN() match {
	return match{
		name: "tcp flags !=",
		load: []expr.Any{tcp[0], tcp[1], &expr.Payload{
			DestRegister: register, Base: expr.PayloadBaseTransportHeader, Offset: 13, Len: 1,
		}},
		values: []value{{text: "syn / fin,syn,rst,ack", data: []byte{0x02}, mask: []byte{0x17}}},
		op:     expr.CmpOpNeq,
	}
}

// matchPorts matches TCP's destination ports.
func matchPorts(ports []uint16) match {
	m := match{name: "tcp dport", load: dport, kind: nftables.TypeInetService}
	for _, p := range slices.Compact(slices.Sorted(slices.Values(ports))) {
		m.values = append(m.values, value{text: strconv.Itoa(int(p)), data: binary.BigEndian.AppendUint16(nil, p)})
	}
	return m
}

// matchListener matches the first packet of a connection to an address and port that has a listener: any value is at
// most 1, and without a socket the kernel ends the rule.
func matchListener() match {
	return match{
		name:   "socket transparent <=",
		load:   []expr.Any{&expr.Socket{Key: expr.NFT_SOCKET_TRANSPARENT, Register: register}},
		values: []value{{text: "1", data: []byte{1}}},
		op:     expr.CmpOpLte,
	}
}

// matchAddresses matches the source (saddr) or the destination (daddr) in ranges that do not overlap.
func matchAddresses(f family, which string, ranges []netip.Prefix) match {
	m := match{name: "ip " + which, kind: nftables.TypeIPAddr}
	at := &expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: 12, Len: 4}
	if f == ipv6 {
		m.name, m.kind = "ip6 "+which, nftables.TypeIP6Addr
		at.Offset, at.Len = 8, 16
	}
	if which == "daddr" {
		at.Offset += at.Len
	}
	m.load = []expr.Any{at}
	for _, r := range ranges {
		v := value{text: r.String(), data: r.Addr().AsSlice(), mask: mask(r), next: next(r)}
		if r.IsSingleIP() {
			v.text = r.Addr().String()
		}
		m.values = append(m.values, v)
	}
	return m
}

func mask(r netip.Prefix) []byte { return net.CIDRMask(r.Bits(), r.Addr().BitLen()) }

// next is the address after the last of a range.
func next(r netip.Prefix) []byte {
	last := r.Addr().AsSlice()
	for i, m := range mask(r) {
		last[i] |= ^m
	}
	address, _ := netip.AddrFromSlice(last)
	if address = address.Next(); !address.IsValid() {
		return nil
	}
	return address.AsSlice()
}

var metaKeys = map[string]expr.MetaKey{
	"iifname": expr.MetaKeyIIFNAME, "oifname": expr.MetaKeyOIFNAME, "skuid": expr.MetaKeySKUID, "skgid": expr.MetaKeySKGID,
}

// matchInterface matches the interface by which a packet arrived (iifname) or leaves (oifname). A name, not an index:
// an interface may appear after the rules. One, not a set: nft shows names in a set that another program has made as
// empty.
func matchInterface(which, name string) match {
	data := make([]byte, unix.IFNAMSIZ)
	copy(data, name)
	return match{
		name:   which,
		load:   []expr.Any{&expr.Meta{Key: metaKeys[which], Register: register}},
		values: []value{{text: `"` + name + `"`, data: data}},
	}
}

// matchOwner matches the user (skuid) or the group (skgid) of the socket.
func matchOwner(which string, id uint32) match {
	return match{
		name:   "meta " + which,
		load:   []expr.Any{&expr.Meta{Key: metaKeys[which], Register: register}},
		values: []value{{text: strconv.FormatUint(uint64(id), 10), data: binary.NativeEndian.AppendUint32(nil, id)}},
	}
}
