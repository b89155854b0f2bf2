package observe

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// counters are open files of a network namespace's counters. They stay those of the namespace in which they were opened.
type counters struct{ snmp, netstat *os.File }

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
	if c.snmp, err = os.Open("/proc/thread-self/net/snmp"); err != nil {
		return c, err
	}
	if c.netstat, err = os.Open("/proc/thread-self/net/netstat"); err != nil {
		_ = c.snmp.Close()
	}
	return c, err
}

func (c counters) close() {
	_ = c.snmp.Close()
	_ = c.netstat.Close()
}

func (c counters) read() (r resets, err error) {
	snmp, err := table(c.snmp)
	if err != nil {
		return r, err
	}
	netstat, err := table(c.netstat)
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

// table reads pairs of lines, names and numbers, each with the group's name in front.
func table(f *os.File) (map[string]int, error) {
	b := make([]byte, 64<<10) // 5 kB in 6.18
	n, err := f.ReadAt(b, 0)
	if err != nil && err != io.EOF {
		return nil, err
	}
	out := make(map[string]int)
	var names []string
	for line := range bytes.Lines(b[:n]) {
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
