package observe

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// processors are those that the machine has online.
var processors = sync.OnceValue(func() int {
	b, _ := os.ReadFile("/proc/stat")
	return bytes.Count(b, []byte("\ncpu"))
})

// sentinel is an unused socket that is closed on a processor. The kernel queues the report of a destroyed socket on the
// processor that destroyed it (sock_diag_broadcast_destroy): behind the reports of the sentinels of all processors,
// none is missing.
type sentinel struct{ processor, fd int }

// openSentinels opens one for each processor. cookies are theirs. It fails where this process may not run on all.
func openSentinels(namespace *os.File) (sentinels []sentinel, cookies map[uint64]bool, err error) {
	var all, own unix.CPUSet
	cookies = make(map[uint64]bool)
	err = in(namespace, func() error {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		all.Fill()
		if err := errors.Join(unix.SchedGetaffinity(0, &own), unix.SchedSetaffinity(0, &all)); err != nil {
			return err
		}
		defer func() { _ = unix.SchedSetaffinity(0, &own) }()
		all.Zero() // the kernel writes as many bits as it has
		if err := unix.SchedGetaffinity(0, &all); err != nil || all.Count() < processors() {
			return errors.Join(err, errors.New("not all processors are usable"))
		}
		for i := 0; len(sentinels) < all.Count(); i++ {
			if !all.IsSet(i) {
				continue
			}
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
			if err != nil {
				return err
			}
			sentinels = append(sentinels, sentinel{i, fd})
			cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_COOKIE)
			if err != nil {
				return err
			}
			cookies[cookie] = true
		}
		return nil
	})
	return sentinels, cookies, err
}

// closeSentinels closes each on its processor. The thread ends with the goroutine, because it stays locked to the last
// one.
func closeSentinels(sentinels []sentinel) {
	runtime.LockOSThread()
	for _, m := range sentinels {
		var one unix.CPUSet
		one.Set(m.processor)
		_ = unix.SchedSetaffinity(0, &one) // one that has gone offline has no reports
		_ = unix.Close(m.fd)
	}
}
