package agent

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/lastcall-dev/lastcall/internal/drain"
)

const terminate = syscall.SIGTERM

// RestartSignals brings the wishes for a hot restart, SIGHUP and SIGUSR2; those
// that nobody has taken yet are one. SIGHUP stays ignored for who was started so
// (nohup). stop ends it.
func RestartSignals() (asked <-chan os.Signal, stop func()) {
	in := make(chan os.Signal, 1)
	signal.Notify(in, syscall.SIGUSR2)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(in, syscall.SIGHUP)
	}
	return in, func() { signal.Stop(in) }
}

// ReloadSignals brings SIGHUP, which tells an agent that is not followed by a
// successor to read its certificates anew. stop ends it.
func ReloadSignals() (told <-chan os.Signal, stop func()) {
	in := make(chan os.Signal, 1)
	signal.Notify(in, syscall.SIGHUP)
	return in, func() { signal.Stop(in) }
}

// Signals turns the process's signals into the drain's: SIGTERM (kubelet,
// systemd, docker) and SIGINT (Ctrl-C) both tell to stop, and the second of them
// makes the last call at once. stop ends it.
//
// SIGPIPE is ignored: a reader of our log that has gone must not end us in the
// middle of a drain (signal(7); Go dies of EPIPE on descriptors 1 and 2).
func Signals() (told <-chan drain.Signal, stop func()) {
	signal.Ignore(syscall.SIGPIPE)
	in := make(chan os.Signal, 4)
	out := make(chan drain.Signal)
	gone, done := make(chan struct{}), make(chan struct{})
	signal.Notify(in, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		defer close(done)
		for {
			select {
			case sig := <-in:
				told := drain.Terminate
				if sig == syscall.SIGINT {
					told = drain.Interrupt
				}
				select {
				case out <- told:
				case <-gone:
					return
				}
			case <-gone:
				return
			}
		}
	}()
	return out, func() {
		signal.Stop(in)
		close(gone)
		<-done
	}
}
