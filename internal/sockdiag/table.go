package sockdiag

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// State is a TCP state, as the kernel counts them (net/tcp_states.h).
type State uint8

// The states that say something about a conversation.
const (
	Established State = 1
	SynRecv     State = 3
	FinWait1    State = 4 // we have ended; the peer has not acknowledged everything
	FinWait2    State = 5
	TimeWait    State = 6
	CloseWait   State = 8 // the peer has ended; we have not
	LastAck     State = 9
	Listen      State = 10
	Closing     State = 11
)

// States is a set of states.
type States uint32

// Of makes a set.
func Of(states ...State) (s States) {
	for _, state := range states {
		s |= 1 << state
	}
	return s
}

// Open are the states of a connection that its owner has not ended.
var Open = Of(Established, CloseWait)

// Socket is one line of the table.
type Socket struct {
	State         State
	Local, Remote netip.AddrPort // IPv4 as IPv4, also when the socket is an IPv6 one
	Cookie        uint64         // one socket's for as long as the machine runs
	UID           uint32
	ReadQueue     uint32 // bytes that the owner has not read; of a listener, connections not accepted
	WriteQueue    uint32 // bytes that the peer has not acknowledged

	// Received and Acked are the bytes that came and that the peer has
	// acknowledged, since the start; LastReceived and LastSent are how long ago.
	Received, Acked        uint64
	LastReceived, LastSent time.Duration
}

// Table is an open way to the kernel. One goroutine at a time.
type Table struct{ nl *netlink.Conn }

// OpenTable opens the table of the process's network namespace.
func OpenTable() (*Table, error) {
	nl, err := netlink.Dial(unix.NETLINK_SOCK_DIAG, nil)
	if err != nil {
		return nil, fmt.Errorf("open the kernel's socket table (sock_diag): %w", err)
	}
	return &Table{nl}, nil
}

// Close ends it.
func (t *Table) Close() error { return t.nl.Close() }

// callTimeout bounds one dump: the kernel answers within the call.
const callTimeout = 2 * time.Second

// Sockets lists the TCP sockets in one of states whose local port is one of
// ports, IPv4 and IPv6.
func (t *Table) Sockets(states States, ports []uint16) ([]Socket, error) {
	if len(ports) == 0 {
		return nil, nil
	}
	filter, err := byLocalPort(ports)
	if err != nil {
		return nil, err
	}
	var out []Socket
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		if err := t.nl.SetDeadline(time.Now().Add(callTimeout)); err != nil {
			return nil, fmt.Errorf("read the kernel's socket table: %w", err)
		}
		answers, err := t.nl.Execute(netlink.Message{
			Header: netlink.Header{Type: unix.SOCK_DIAG_BY_FAMILY, Flags: netlink.Request | netlink.Dump},
			Data:   append(request(family, states), filter...),
		})
		if errors.Is(err, unix.ENOENT) && family == unix.AF_INET6 { // no IPv6 in this kernel
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read the kernel's socket table: %w", err)
		}
		for _, answer := range answers {
			s, ok := parse(answer.Data)
			if ok {
				out = append(out, s)
			}
		}
	}
	return out, nil
}

// request is struct inet_diag_req_v2 (linux/inet_diag.h), with tcp_info asked for.
func request(family uint8, states States) []byte {
	b := make([]byte, 56)
	b[0], b[1], b[2] = family, unix.IPPROTO_TCP, 1<<(inetDiagInfo-1)
	binary.NativeEndian.PutUint32(b[4:], uint32(states))
	return b
}

// Attributes and sizes of linux/inet_diag.h.
const (
	inetDiagReqBytecode = 1
	inetDiagInfo        = 2
	inetDiagMsgLen      = 72
)

// parse reads struct inet_diag_msg and the tcp_info behind it.
func parse(b []byte) (s Socket, ok bool) {
	if len(b) < inetDiagMsgLen {
		return s, false
	}
	s.State = State(b[1])
	s.Local = netip.AddrPortFrom(address(b[0], b[8:24]), binary.BigEndian.Uint16(b[4:]))
	s.Remote = netip.AddrPortFrom(address(b[0], b[24:40]), binary.BigEndian.Uint16(b[6:]))
	s.Cookie = uint64(binary.NativeEndian.Uint32(b[44:])) | uint64(binary.NativeEndian.Uint32(b[48:]))<<32
	s.ReadQueue = binary.NativeEndian.Uint32(b[56:])
	s.WriteQueue = binary.NativeEndian.Uint32(b[60:])
	s.UID = binary.NativeEndian.Uint32(b[64:])
	attributes, err := netlink.NewAttributeDecoder(b[inetDiagMsgLen:])
	if err != nil {
		return s, true
	}
	for attributes.Next() {
		if attributes.Type() == inetDiagInfo {
			s.tcpInfo(attributes.Bytes())
		}
	}
	return s, true
}

// tcpInfo reads what we need of struct tcp_info (linux/tcp.h), which grows at
// its end from kernel to kernel.
func (s *Socket) tcpInfo(b []byte) {
	const lastDataSent, lastDataRecv, bytesAcked, bytesReceived = 44, 52, 120, 128
	if len(b) >= lastDataRecv+4 {
		s.LastSent = time.Duration(binary.NativeEndian.Uint32(b[lastDataSent:])) * time.Millisecond
		s.LastReceived = time.Duration(binary.NativeEndian.Uint32(b[lastDataRecv:])) * time.Millisecond
	}
	if len(b) >= bytesReceived+8 {
		s.Acked = binary.NativeEndian.Uint64(b[bytesAcked:])
		s.Received = binary.NativeEndian.Uint64(b[bytesReceived:])
	}
}

func address(family uint8, b []byte) netip.Addr {
	if family == unix.AF_INET {
		return netip.AddrFrom4([4]byte(b[:4]))
	}
	return netip.AddrFrom16([16]byte(b[:16])).Unmap()
}
