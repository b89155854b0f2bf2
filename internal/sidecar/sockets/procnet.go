package sockets

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
)

// procFiles are the older, slower and poorer form of the table, without byte counters and times.
var procFiles = []string{"/proc/net/tcp", "/proc/net/tcp6"}

// ends are the two ends of a connection: its name in both tables.
type ends struct{ local, remote netip.AddrPort }

// procSocket is a line of /proc/net/tcp.
type procSocket struct {
	ends
	state           sockdiag.State
	unsent, unread  uint32
	inode           uint64
	answersInStride bool
}

// readProc reads the tables of both families, without sockets on other ports than those; nil: on any.
func readProc(ports []uint16) (out []procSocket, err error) {
	for i, file := range procFiles {
		data, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) && i > 0 {
			continue // no IPv6
		}
		if err != nil {
			return nil, fmt.Errorf("read the kernel's socket table: %w", err)
		}
		if out, err = scanProc(out, bytes.NewReader(data), ports); err != nil {
			return nil, fmt.Errorf("read the kernel's socket table: %s: %w", file, err)
		}
	}
	return out, nil
}

// scanProc appends the sockets of one table.
func scanProc(out []procSocket, table io.Reader, ports []uint16) ([]procSocket, error) {
	lines := bufio.NewScanner(table)
	for lines.Scan() {
		if s, ok := parseProc(lines.Text()); ok && (ports == nil || slices.Contains(ports, s.local.Port())) {
			out = append(out, s)
		}
	}
	return out, lines.Err()
}

// cookie identifies a connection while it is open, as its inode does; but it has no inode before the app has accepted
// it, and after the app has closed it.
func (s procSocket) cookie() uint64 {
	return 1<<63 | uint64(s.remote.Port())<<16 | uint64(s.local.Port()) | s.inode<<32
}

// parseProc parses one line (get_tcp4_sock in net/ipv4/tcp_ipv4.c). It fails on the heading.
func parseProc(line string) (s procSocket, ok bool) {
	f := strings.Fields(line)
	if len(f) < 12 {
		return s, false
	}
	var ok1, ok2 bool
	s.local, ok1 = parseEnd(f[1])
	s.remote, ok2 = parseEnd(f[2])
	state, err1 := strconv.ParseUint(f[3], 16, 8)
	tx, rx, _ := strings.Cut(f[4], ":")
	unsent, err2 := strconv.ParseUint(tx, 16, 32)
	unread, err3 := strconv.ParseUint(rx, 16, 32)
	inode, err4 := strconv.ParseUint(f[9], 10, 64)
	if !ok1 || !ok2 || errors.Join(err1, err2, err3, err4) != nil {
		return s, false
	}
	s.state, s.unsent, s.unread, s.inode = sockdiag.State(state), uint32(unsent), uint32(unread), inode
	if len(f) >= 17 { // a full socket
		// (quick acknowledgements left << 1) | in pingpong mode
		modes, err := strconv.ParseUint(f[14], 10, 32)
		s.answersInStride = err == nil && modes&1 == 1
	}
	return s, true
}

// parseEnd parses "0100007F:1F90": the address as the kernel's words of 32 bits in the machine's byte order, the port
// as a number.
func parseEnd(text string) (netip.AddrPort, bool) {
	address, port, _ := strings.Cut(text, ":")
	b, err1 := hex.DecodeString(address)
	n, err2 := strconv.ParseUint(port, 16, 16)
	if err1 != nil || err2 != nil || len(b) != 4 && len(b) != 16 {
		return netip.AddrPort{}, false
	}
	for i := 0; i < len(b); i += 4 {
		binary.NativeEndian.PutUint32(b[i:], binary.BigEndian.Uint32(b[i:]))
	}
	a, _ := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(a.Unmap(), uint16(n)), true
}

// acks are the kernel's acknowledgements on connections on which client and app both sent in one jiffy.
type acks struct {
	inStride map[ends]bool // the app's responses have carried the acknowledgements
	exact    bool          // connections that are not in inStride have no response
}

// thresholdFile holds 1 where the kernel counts from the first such response. Kernels 5.1 to 6.6 count from the third,
// and those before 6.9 have no such file (TCP_PINGPONG_THRESH).
const thresholdFile = "/proc/sys/net/ipv4/tcp_pingpong_thresh"

// readAcks lists the connections on which the kernel expects a response to carry the acknowledgement ("pingpong
// mode"): the app's responses have followed within 40 ms.
//
// A request without a response in that time makes the kernel acknowledge it by itself and leave the mode
// (tcp_delack_timer_handler). So a silent connection in the mode has probably been answered; but a request in several
// pieces is acknowledged at once, and does not make the kernel leave the mode.
func readAcks(ports []uint16) (acks, error) {
	sockets, err := readProc(ports)
	if err != nil {
		return acks{}, err
	}
	return acksOf(sockets), nil
}

// Acks are open tables such as /proc/net/tcp, of the network namespace in which they were opened.
type Acks []*os.File

// OpenAcks opens the tables in the namespace of the calling thread.
func OpenAcks() (a Acks, err error) {
	for _, name := range []string{"tcp", "tcp6"} {
		file, err := os.Open("/proc/thread-self/net/" + name)
		if err == nil {
			a = append(a, file)
		} else if name == "tcp" { // otherwise there is no IPv6
			return nil, fmt.Errorf("open the kernel's socket table: %w", err)
		}
	}
	return a, nil
}

// Close ends them.
func (a Acks) Close() {
	for _, file := range a {
		_ = file.Close() // it was only read
	}
}

// maxTable bounds a table of sockets, bytes: 150 for each.
const maxTable = 64 << 20

// InStride reads the tables. answers reports, of a connection that has been silent for 60 ms, whether the app has
// answered: the client has acknowledged an answer by itself, or the app's answers have carried the acknowledgements
// (see readAcks). Otherwise it has not if that is exact.
func (a Acks) InStride(ports []uint16) (answers func(sockdiag.Socket) (answered, exact bool), err error) {
	var sockets []procSocket
	for _, file := range a {
		if sockets, err = scanProc(sockets, io.NewSectionReader(file, 0, maxTable), ports); err != nil {
			return nil, fmt.Errorf("read the kernel's socket table: %w", err)
		}
	}
	h := acksOf(sockets)
	established := make(map[ends]bool)
	for _, s := range sockets {
		established[s.ends] = s.state == sockdiag.Established
	}
	return func(s sockdiag.Socket) (answered, exact bool) {
		e := ends{s.Local, s.Remote}
		return h.inStride[e] || isAcknowledged(s), h.exact && established[e]
	}, nil
}

func acksOf(sockets []procSocket) acks {
	h := acks{inStride: make(map[ends]bool)}
	for _, s := range sockets {
		if s.answersInStride {
			h.inStride[s.ends] = true
		}
	}
	threshold, err := os.ReadFile(thresholdFile)
	h.exact = err == nil && strings.TrimSpace(string(threshold)) == "1"
	return h
}

// turn is the conclusion for a connection on which both sides sent in one jiffy.
func (h acks) turn(e ends) turn {
	switch {
	case h.inStride[e]:
		return likely
	case h.exact:
		return client
	}
	return unclear
}

// procTable replaces sock_diag where there is none (gVisor, a strict seccomp profile). It never shows that a connection
// is idle.
type procTable struct{}

func (procTable) Sockets(states sockdiag.States, ports []uint16) ([]sockdiag.Socket, error) {
	if len(ports) == 0 {
		return nil, nil
	}
	return procSockets(states, ports)
}

func (procTable) Close() error { return nil }

// All lists the TCP sockets of the network namespace in one of states, also where there is no sock_diag.
func All(states sockdiag.States) ([]sockdiag.Socket, error) { return procSockets(states, nil) }

func procSockets(states sockdiag.States, ports []uint16) ([]sockdiag.Socket, error) {
	all, err := readProc(ports)
	if err != nil {
		return nil, err
	}
	var out []sockdiag.Socket
	for _, s := range all {
		if states&sockdiag.Of(s.state) != 0 {
			out = append(out, sockdiag.Socket{
				State: s.state, Local: s.local, Remote: s.remote,
				Cookie: s.cookie(), Inode: uint32(s.inode), ReadQueue: s.unread, WriteQueue: s.unsent,
			})
		}
	}
	return out, nil
}
