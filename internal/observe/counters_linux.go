package observe

import (
	"bytes"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/lastcall-dev/lastcall/internal/sockets"
)

// counters are open files of a network namespace, in /proc/net. They stay those of the namespace in which they were
// opened.
type counters struct{ snmp, netstat, tcp, tcp6 *os.File } // tcp6 is nil without IPv6

// resets are the namespace's TCP resets, since it exists.
type resets struct {
	sent int // all
	// aborted are those that closed a connection that this namespace still knew: with unread data, without lingering,
	// by data after the close, or for want of memory.
	aborted int
}

// refusing are the resets that answered a segment without a connection, such as a SYN to a port without a listener.
func (r resets) refusing() int { return r.sent - r.aborted }

func openCounters() (c counters, err error) {
	for name, file := range map[string]**os.File{"snmp": &c.snmp, "netstat": &c.netstat, "tcp": &c.tcp, "tcp6": &c.tcp6} {
		if *file, err = os.Open("/proc/thread-self/net/" + name); err != nil && name != "tcp6" {
			c.close()
			return c, err
		}
	}
	return c, nil
}

func (c counters) close() {
	for _, file := range []*os.File{c.snmp, c.netstat, c.tcp, c.tcp6} {
		_ = file.Close() // of nil: an error
	}
}

// tableMost bounds a table of sockets, bytes: 150 for each.
const tableMost = 64 << 20

// acks reads the tables of sockets: see sockets.InStride.
func (c counters) acks(ports []uint16) (answers func(local, remote netip.AddrPort) (answered, exact bool), err error) {
	tables := []io.Reader{io.NewSectionReader(c.tcp, 0, tableMost)}
	if c.tcp6 != nil {
		tables = append(tables, io.NewSectionReader(c.tcp6, 0, tableMost))
	}
	return sockets.InStride(ports, tables...)
}

// segments is the number of TCP segments that the namespace has received and sent, of any kind.
func (c counters) segments() (int, error) {
	snmp, err := table(c.snmp, "Tcp:")
	return snmp["Tcp:InSegs"] + snmp["Tcp:OutSegs"], err
}

func (c counters) read() (r resets, err error) {
	snmp, err := table(c.snmp, "Tcp:")
	if err != nil {
		return r, err
	}
	netstat, err := table(c.netstat, "TcpExt:")
	if err != nil {
		return r, err
	}
	sent, ok := snmp["Tcp:OutRsts"]
	if !ok {
		return r, fmt.Errorf("read %s: no OutRsts", c.snmp.Name())
	}
	r.sent = sent
	for _, name := range []string{"TCPAbortOnClose", "TCPAbortOnData", "TCPAbortOnLinger", "TCPAbortOnMemory"} {
		r.aborted += netstat["TcpExt:"+name]
	}
	return r, nil
}

// table reads a group's pair of lines, names and numbers, each with the group's name in front.
func table(f *os.File, group string) (map[string]int, error) {
	b := make([]byte, 16<<10) // 5 kB in 6.18
	n, err := f.ReadAt(b, 0)
	if err != nil && err != io.EOF {
		return nil, err
	}
	out := make(map[string]int)
	var names []string
	for line := range bytes.Lines(b[:n]) {
		if !bytes.HasPrefix(line, []byte(group)) {
			continue
		}
		fields := strings.Fields(string(line))
		if names == nil {
			names = fields
			continue
		}
		for i := 1; i < len(fields) && i < len(names); i++ {
			if value, err := strconv.Atoi(fields[i]); err == nil {
				out[names[0]+names[i]] = value
			}
		}
		names = nil
	}
	return out, nil
}
