package observe

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockets"
)

// kernel has the sources of a watch, of one network namespace.
type kernel struct {
	table    *sockdiag.Table
	reports  *sockdiag.Watch
	counters counters
}

// openKernel opens everything in the namespace; nil is the process's own.
// wake is called after urgent reports: see sockdiag.WatchAll.
func openKernel(namespace *os.File, buffer int, wake func()) (*kernel, error) {
	k := new(kernel)
	err := in(namespace, func() (err error) {
		if k.counters, err = openCounters(); err != nil {
			return fmt.Errorf("open the network namespace's counters: %w", err)
		}
		if k.table, err = sockdiag.OpenTable(); err != nil {
			return err
		}
		k.reports, err = sockdiag.WatchAll(buffer, wake)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, k.close())
	}
	return k, nil
}

// in runs f in a network namespace; nil is the process's own.
func in(namespace *os.File, f func() error) error {
	if namespace == nil {
		return f()
	}
	return Within(int(namespace.Fd()), f)
}

// Within runs f in another network namespace: of a descriptor of /proc/PID/ns/net, or of a process (pidfd, since Linux
// 5.8). Sockets that f opens stay there; goroutines that it starts are not there.
func Within(namespace int, f func() error) error {
	done := make(chan error)
	go func() { done <- within(namespace, f) }()
	return <-done
}

// within enters the namespace and comes back. A thread that cannot come back stays locked and ends with the goroutine;
// the main thread could not end, and /proc/self would show its namespace.
func within(namespace int, f func() error) error {
	runtime.LockOSThread()
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("open the own network namespace: %w", err)
	}
	defer own.Close()
	if err := unix.Setns(namespace, unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter the network namespace: %w", err)
	}
	err = f()
	if back := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); back != nil {
		return errors.Join(err, fmt.Errorf("leave the network namespace: %w", back))
	}
	runtime.UnlockOSThread()
	return err
}

func (k *kernel) close() (err error) {
	k.counters.close()
	if k.reports != nil {
		err = k.reports.Close()
	}
	if k.table != nil {
		err = errors.Join(err, k.table.Close())
	}
	return err
}

// counters are open files of a network namespace, in /proc/net. They stay those of the namespace in which they were
// opened.
type counters struct{ snmp, netstat, tcp, tcp6 *os.File } // tcp6 is nil without IPv6

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

// maxTable bounds a table of sockets, bytes: 150 for each.
const maxTable = 64 << 20

// acks reads the tables of sockets: see sockets.InStride.
func (c counters) acks(ports []uint16) (answers func(local, remote netip.AddrPort) (answered, exact bool), err error) {
	tables := []io.Reader{io.NewSectionReader(c.tcp, 0, maxTable)}
	if c.tcp6 != nil {
		tables = append(tables, io.NewSectionReader(c.tcp6, 0, maxTable))
	}
	return sockets.InStride(ports, tables...)
}

// segments is the number of TCP segments that the namespace has received and sent, of any kind.
func (c counters) segments() (int, error) { return sum(c.snmp, "Tcp:", "InSegs", "OutSegs") }

// refusing is the number of resets since the namespace exists that answered a segment without a connection, such as a
// SYN to a port without a listener: all but those of connections that it still knew, closed with unread data, without
// lingering, by data after the close, or for want of memory. It reads again when such a connection was aborted
// meanwhile, which would look like a refused client now or later.
func (c counters) refusing() (n int, err error) {
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

// buffers hold a file of counters: 5 kB in 6.18.
var buffers = sync.Pool{New: func() any { return new([16 << 10]byte) }}

// sum adds up the counters with these names, in a group's pair of lines: names and numbers.
func sum(f *os.File, group string, names ...string) (total int, err error) {
	b := buffers.Get().(*[16 << 10]byte)
	defer buffers.Put(b)
	n, err := f.ReadAt(b[:], 0)
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

// pacer shares processor time among looks: a look walks the socket table of the whole machine, whatever namespace it is
// for, so a part for each would add up. It is safe for concurrent use.
type pacer struct {
	share time.Duration // the reciprocal of the part of a core that all take together

	mu   sync.Mutex
	free time.Time // when everything until now is paid
}

// Those of all watches of the process: looks from Begin on, and scans of the listeners before.
var (
	looks = pacer{share: 20}
	scans = pacer{share: 1000}
)

// reserve pays for work that ended at now, and returns the earliest time of the next look of the watch that did it.
// Watches that look in turn get equal parts, and what one does not use is the others'.
func (p *pacer) reserve(now time.Time, cost time.Duration) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = later(p.free, now).Add(p.share * cost)
	return p.free
}

// debt holds the reservations of one watch that have not come due.
type debt struct {
	of   *pacer
	due  time.Time     // of the latest reservation
	owed time.Duration // for those that were not due when the next was made
}

// reserve pays for work: see pacer.reserve.
func (d *debt) reserve(now time.Time, cost time.Duration) time.Time {
	if !now.Before(d.due) {
		d.owed = 0
	}
	d.owed += d.of.share * cost
	d.due = d.of.reserve(now, cost)
	return d.due
}

// release gives the reservations back, because no watch has to wait for one that has ended: after many pods have ended
// at once, the next one's end would otherwise be watched up to a minute late.
func (d *debt) release(now time.Time) {
	d.of.mu.Lock()
	defer d.of.mu.Unlock()
	d.of.free = d.of.free.Add(-min(d.owed, max(d.due.Sub(now), 0)))
	d.owed = 0
}

// paid is when everything until now is paid.
func (p *pacer) paid() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.free
}

// measure returns the processor time that work takes, in which the wait for a busy machine is not.
func measure(work func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	from := threadTime()
	work()
	return threadTime() - from
}

func threadTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) // it has no error for the own thread
	return time.Duration(t.Nano())
}
