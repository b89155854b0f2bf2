package sockdiag

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// State is a TCP state, in the kernel's numbering (net/tcp_states.h).
type State uint8

// The states of connections.
const (
	Established State = 1
	synSent     State = 2
	FinWait1    State = 4 // closed here; the peer has not acknowledged everything
	FinWait2    State = 5
	TimeWait    State = 6 // closed here first, then by the peer; such a socket has no counters
	CloseWait   State = 8 // closed by the peer, not here
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

// Socket is one line of the table.
type Socket struct {
	State         State
	Local, Remote netip.AddrPort // IPv4 as IPv4, also when the socket is an IPv6 one
	Cookie        uint64         // unique until the machine restarts
	Inode         uint32         // 0 when no process has it open
	ReadQueue     uint32         // bytes that the owner has not read; of a listener, connections not accepted
	WriteQueue    uint32         // bytes that the peer has not acknowledged

	// Received and Acked are the bytes received and the bytes that the peer has acknowledged, since the start; a FIN
	// counts as one. Sent are the bytes sent without retransmissions and without the FIN, 0 before kernel 4.19.
	Received, Acked, Sent uint64
	// SegmentsReceived and SegmentsSent are the segments with data, without retransmissions, and MSS is the largest
	// that is sent. 0 where the kernel does not count them.
	SegmentsReceived, SegmentsSent, MSS uint32
	// EmptyReceived and EmptySent are the segments without data. Of an accepted connection, the client's SYN and the
	// end of its handshake are among those received.
	EmptyReceived, EmptySent uint32

	// The time since data arrived, data was sent and an acknowledgement arrived, with the resolution of the kernel's
	// tick: 10 ms at worst.
	LastReceived, LastSent, LastAcked time.Duration

	Ended time.Time // when Watch received the report of its end; zero in a table
}

// Ends are the two ends of a connection, which name it also when its socket is another one: that of TIME_WAIT.
type Ends struct{ Local, Remote netip.AddrPort }

// Ends returns them.
func (s *Socket) Ends() Ends { return Ends{s.Local, s.Remote} }

// DataReceived are the bytes from the peer without its FIN, as far as the state shows the FIN.
func (s *Socket) DataReceived() uint64 {
	if s.HasFIN() {
		return s.Received - min(s.Received, 1)
	}
	return s.Received
}

// HasFIN reports whether the state of a connection shows that the peer's FIN has come.
func (s *Socket) HasFIN() bool {
	return s.State == CloseWait || s.State == LastAck || s.State == Closing
}

// HasClosed reports whether the owner of a connection has closed it.
func (s *Socket) HasClosed() bool { return s.State != Established && s.State != CloseWait }

// DropLateFIN takes a FIN from the counters that came after the kernel had read the state of s, and before it read the
// counters (inet_sk_diag_fill and tcp_get_info). before are the DataReceived of an earlier look. It also hides a single
// byte of data, until the next one comes.
func (s *Socket) DropLateFIN(before uint64) {
	if !s.HasFIN() && s.Received == before+1 {
		s.Received--
		s.ReadQueue -= min(s.ReadQueue, 1)
	}
}

// Unread are the bytes that the owner has not read, without the peer's FIN.
func (s *Socket) Unread() uint32 {
	if s.HasFIN() {
		return s.ReadQueue - min(s.ReadQueue, 1)
	}
	return s.ReadQueue
}

// Table is an open connection to the kernel, for one goroutine at a time.
type Table struct {
	file     *os.File // blocking: the kernel responds within the call, and waiting for it would cost more than the dump
	sequence uint32   // of the last request
}

// callTimeout bounds each wait for an answer.
const callTimeout = 2 * time.Second

// OpenTable opens the table of the network namespace of the calling thread, which is the process's own unless the
// caller has entered another one. The table stays there.
func OpenTable() (*Table, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, fmt.Errorf("open the kernel's socket table (sock_diag): %w", err)
	}
	timeout := unix.NsecToTimeval(callTimeout.Nanoseconds())
	if err := errors.Join(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout),
		unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("open the kernel's socket table (sock_diag): %w", err)
	}
	return &Table{file: os.NewFile(uintptr(fd), "sock_diag")}, nil
}

// Close ends it.
func (t *Table) Close() error { return t.file.Close() }

// Sockets lists the TCP sockets in one of states whose local port is one of ports, IPv4 and IPv6. Its cost is a walk
// over the kernel's hash table, which grows with the machine's memory, not with its sockets: 0.25 ms for 262,144
// buckets.
func (t *Table) Sockets(states States, ports []uint16) ([]Socket, error) {
	if len(ports) == 0 {
		return nil, nil
	}
	if !slices.IsSorted(ports) {
		ports = slices.Sorted(slices.Values(ports))
	}
	return t.list(states, ports, byLocalPort(spansOf(ports, maxSpans)))
}

// All lists the TCP sockets of the namespace in one of states, whatever their port.
func (t *Table) All(states States) ([]Socket, error) { return t.list(states, nil, nil) }

// ClosedHere are the connections that this side closed first, and that the kernel has not forgotten since.
func (t *Table) ClosedHere() (map[Ends]bool, error) {
	sockets, err := t.All(Of(TimeWait, FinWait2))
	out := make(map[Ends]bool, len(sockets))
	for _, s := range sockets {
		out[s.Ends()] = true
	}
	return out, err
}

func (t *Table) list(states States, ports []uint16, filter []byte) (out []Socket, err error) {
	t.sequence++
	err = t.execute(request(states, filter, t.sequence), func(answer []byte) {
		if s, ok := parse(answer); ok {
			if _, isWatched := slices.BinarySearch(ports, s.Local.Port()); isWatched || ports == nil {
				out = append(out, s)
			}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read the kernel's socket table: %w", err)
	}
	return out, nil
}

// answers hold one of the kernel's, which are at most so large, or a file of counters.
var answers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// execute sends a request for a dump, and calls on for each part of the dump.
func (t *Table) execute(request []byte, on func([]byte)) error {
	if _, err := t.file.Write(request); err != nil {
		return err
	}
	b := answers.Get().(*[32 << 10]byte)
	defer answers.Put(b)
	for {
		n, err := t.file.Read(b[:])
		if err != nil {
			return err
		}
		messages, err := syscall.ParseNetlinkMessage(b[:n])
		if err != nil {
			return err
		}
		for _, m := range messages {
			switch {
			case m.Header.Seq != t.sequence: // the rest of a dump that failed
			case m.Header.Type == unix.NLMSG_DONE || m.Header.Type == unix.NLMSG_ERROR:
				if len(m.Data) >= 4 {
					if code := int32(binary.NativeEndian.Uint32(m.Data)); code != 0 {
						return unix.Errno(-code)
					}
				}
				return nil
			default:
				on(m.Data)
			}
		}
	}
}

// request is for both families at once, with tcp_info, in the older form (struct inet_diag_req of linux/inet_diag.h):
// the newer one has a family, and would double the walks.
func request(states States, filter []byte, sequence uint32) []byte {
	b := make([]byte, unix.NLMSG_HDRLEN+60)
	binary.NativeEndian.PutUint32(b, uint32(len(b)+len(filter)))
	binary.NativeEndian.PutUint16(b[4:], tcpDiagGetSock)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	binary.NativeEndian.PutUint32(b[8:], sequence)
	diag := b[unix.NLMSG_HDRLEN:]
	diag[3] = 1 << (inetDiagInfo - 1)
	binary.NativeEndian.PutUint32(diag[52:], uint32(states))
	return append(b, filter...)
}

// Attributes and sizes of linux/inet_diag.h.
const (
	tcpDiagGetSock      = 18
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
	s.Inode = binary.NativeEndian.Uint32(b[68:])
	for b = b[inetDiagMsgLen:]; len(b) >= unix.SizeofNlAttr; {
		size := min(max(int(binary.NativeEndian.Uint16(b)), unix.SizeofNlAttr), len(b))
		if binary.NativeEndian.Uint16(b[2:]) == inetDiagInfo {
			s.tcpInfo(b[unix.SizeofNlAttr:size])
		}
		b = b[min((size+3)&^3, len(b)):]
	}
	return s, true
}

// tcpInfo takes the needed part of struct tcp_info (linux/tcp.h), which grows at its end from kernel to kernel. What an
// older one does not have is 0.
func (s *Socket) tcpInfo(b []byte) {
	var i unix.TCPInfo
	copy((*[unsafe.Sizeof(i)]byte)(unsafe.Pointer(&i))[:], b)
	ms := func(n uint32) time.Duration { return time.Duration(n) * time.Millisecond }
	s.LastSent, s.LastReceived, s.LastAcked = ms(i.Last_data_sent), ms(i.Last_data_recv), ms(i.Last_ack_recv)
	s.Acked, s.Received, s.Sent = i.Bytes_acked, i.Bytes_received, i.Bytes_sent-min(i.Bytes_sent, i.Bytes_retrans)
	lost := min(i.Data_segs_out, i.Total_retrans)
	s.MSS, s.SegmentsReceived, s.SegmentsSent = i.Snd_mss, i.Data_segs_in, i.Data_segs_out-lost
	s.EmptyReceived, s.EmptySent = i.Segs_in-i.Data_segs_in, i.Segs_out-i.Data_segs_out
}

func address(family uint8, b []byte) netip.Addr {
	if family == unix.AF_INET {
		return netip.AddrFrom4([4]byte(b[:4]))
	}
	return netip.AddrFrom16([16]byte(b[:16])).Unmap()
}
