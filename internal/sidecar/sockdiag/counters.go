package sockdiag

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
)

// Counters are the TCP counters of a network namespace. They stay those of the namespace in which they were opened.
type Counters struct{ snmp, netstat *os.File }

// OpenCounters opens them in the namespace of the calling thread.
func OpenCounters() (c Counters, err error) {
	if c.snmp, err = os.Open("/proc/thread-self/net/snmp"); err == nil {
		c.netstat, err = os.Open("/proc/thread-self/net/netstat")
	}
	if err != nil {
		c.Close()
		return c, fmt.Errorf("open the network namespace's counters: %w", err)
	}
	return c, nil
}

// Close ends them.
func (c Counters) Close() {
	_, _ = c.snmp.Close(), c.netstat.Close() // of nil: an error
}

// Segments is the number of TCP segments that the namespace has received and sent, of any kind.
func (c Counters) Segments() (int, error) { return sum(c.snmp, "Tcp:", "InSegs", "OutSegs") }

// Resets is the number of resets since the namespace exists that answered a segment without a connection, such as a
// SYN to a port without a listener: all but those of connections that it still knew, closed with unread data, without
// lingering, by data after the close, or for want of memory. It reads again when such a connection was aborted
// meanwhile, which would look like a refused client now or later.
func (c Counters) Resets() (n int, err error) {
	aborted := func() (int, error) {
		return sum(c.netstat, "TcpExt:", "TCPAbortOnClose", "TCPAbortOnData", "TCPAbortOnLinger", "TCPAbortOnMemory")
	}
	for range 5 {
		before, err1 := aborted()
		sent, err2 := sum(c.snmp, "Tcp:", "OutRsts")
		after, err3 := aborted()
		n, err = sent-after, errors.Join(err1, err2, err3)
		if err != nil || before == after {
			break
		}
	}
	return n, err
}

// sum adds up the counters with these names, in a group's pair of lines: names and numbers.
func sum(f *os.File, group string, names ...string) (total int, err error) {
	b := answers.Get().(*[32 << 10]byte)
	defer answers.Put(b)
	n, err := f.ReadAt(b[:], 0) // 5 kB in 6.18
	if err != nil && err != io.EOF {
		return 0, err
	}
	var header [][]byte
	for line := range bytes.Lines(b[:n]) {
		if !bytes.HasPrefix(line, []byte(group)) {
			continue
		}
		fields := bytes.Fields(line)
		if header == nil {
			header = fields
		}
		for i, name := range header[:min(len(header), len(fields))] {
			if value, err := strconv.Atoi(string(fields[i])); err == nil && slices.Contains(names, string(name)) {
				total += value
			}
		}
	}
	return total, nil
}
