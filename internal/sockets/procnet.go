package sockets

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/lastcall-dev/lastcall/internal/sockdiag"
)

// procFiles are the older, slower and poorer way to the table. It has no byte
// counters and no times.
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

// readProc reads both families' tables, and leaves out what is not on ports.
func readProc(ports []uint16) (out []procSocket, err error) {
	for i, file := range procFiles {
		data, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) && i > 0 {
			continue // no IPv6
		}
		if err != nil {
			return nil, fmt.Errorf("read the kernel's socket table: %w", err)
		}
		lines := bufio.NewScanner(bytes.NewReader(data))
		for lines.Scan() {
			if s, ok := parseProc(lines.Text()); ok && slices.Contains(ports, s.local.Port()) {
				out = append(out, s)
			}
		}
		if err := lines.Err(); err != nil {
			return nil, fmt.Errorf("read the kernel's socket table: %s: %w", file, err)
		}
	}
	return out, nil
}

// cookie is one connection's for as long as it is open, and so is its inode: but it
// has none before the app has accepted it, and after the app has closed it.
func (s procSocket) cookie() uint64 {
	return 1<<63 | uint64(s.remote.Port())<<16 | uint64(s.local.Port()) | s.inode<<32
}

// parseProc reads one line (get_tcp4_sock in net/ipv4/tcp_ipv4.c). The heading is
// none.
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

// parseEnd reads "0100007F:1F90": the address as the kernel's words of 32 bits in
// the machine's order, the port as a number.
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

// habits are what the kernel's acknowledgements tell of connections on which client
// and app have both spoken in one jiffy.
type habits struct {
	inStride map[ends]bool // the app's answers have carried the acknowledgements
	exact    bool          // what is not in inStride has not been answered
}

// thresholdFile holds 1 where the first such answer counts. Kernels 5.1 to 6.6 count
// the third, and those before 6.9 do not say (TCP_PINGPONG_THRESH).
const thresholdFile = "/proc/sys/net/ipv4/tcp_pingpong_thresh"

// readHabits lists the connections on which the kernel expects an answer to carry
// the acknowledgement ("pingpong mode"): the app's answers have come within 40 ms.
//
// A request that gets no answer in that time makes the kernel acknowledge it by
// itself and leave the mode (tcp_delack_timer_handler). So a connection that has
// been still for longer and is in it has likely been answered; but a request in
// several pieces is acknowledged at once, and does not make it leave the mode.
func readHabits(ports []uint16) (habits, error) {
	sockets, err := readProc(ports)
	if err != nil {
		return habits{}, err
	}
	h := habits{inStride: make(map[ends]bool)}
	for _, s := range sockets {
		if s.answersInStride {
			h.inStride[s.ends] = true
		}
	}
	threshold, err := os.ReadFile(thresholdFile)
	h.exact = err == nil && strings.TrimSpace(string(threshold)) == "1"
	return h, nil
}

// turn is what follows for a connection on which both have spoken in one jiffy.
func (h habits) turn(e ends) turn {
	switch {
	case h.inStride[e]:
		return likely
	case h.exact:
		return client
	}
	return unclear
}

// procTable stands in for sock_diag where there is none (gVisor, a strict seccomp
// profile). Of what it shows idleness cannot be told.
type procTable struct{}

func (procTable) Sockets(states sockdiag.States, ports []uint16) ([]sockdiag.Socket, error) {
	all, err := readProc(ports)
	if err != nil {
		return nil, err
	}
	var out []sockdiag.Socket
	for _, s := range all {
		if states&sockdiag.Of(s.state) != 0 {
			out = append(out, sockdiag.Socket{
				State: s.state, Local: s.local, Remote: s.remote,
				Cookie: s.cookie(), ReadQueue: s.unread, WriteQueue: s.unsent,
			})
		}
	}
	return out, nil
}

func (procTable) Close() error { return nil }
