package sockdiag

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// In runs f in a network namespace by its file, such as /proc/PID/ns/net; "" is the process's own. See Within.
func In(path string, f func() error) error {
	if path == "" {
		return f()
	}
	namespace, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open a network namespace: %w", err)
	}
	defer func() { _ = namespace.Close() }()
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
