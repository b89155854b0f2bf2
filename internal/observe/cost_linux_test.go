//go:build cost

package observe

import (
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// used is this process's processor time.
func used(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// resident is this process's memory, as the kernel prints it.
func resident(t *testing.T) string {
	t.Helper()
	runtime.GC()
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(b), "VmRSS:")
	line, _, _ := strings.Cut(after, "\n")
	return strings.TrimSpace(line)
}

// crowd makes a namespace with connections on its loopback interface, and returns its file and one of its clients.
func crowd(t *testing.T, connections int) (path string, client net.Conn) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread stays: the namespace needs a name
		done <- func() error {
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				return err
			}
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			request, err := unix.NewIfreq("lo")
			if err != nil {
				return err
			}
			request.SetUint16(unix.IFF_UP)
			if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request); err != nil {
				return err
			}
			ln, err := net.Listen("tcp", "127.0.0.1:8080")
			if err != nil {
				return err
			}
			for range connections {
				c, err := net.Dial("tcp", ln.Addr().String())
				if err != nil {
					return err
				}
				s, err := ln.Accept()
				if err != nil {
					return err
				}
				t.Cleanup(func() { _, _ = c.Close(), s.Close() })
				client = c
			}
			t.Cleanup(func() { _ = ln.Close() })
			file, err := os.Open("/proc/thread-self/ns/net")
			if err != nil {
				return err
			}
			t.Cleanup(func() { _ = file.Close() })
			path = "/proc/self/fd/" + strconv.Itoa(int(file.Fd()))
			return nil
		}()
	}()
	if err := <-done; err != nil {
		t.Skip(err)
	}
	return path, client
}

// TestCost measures what 200 namespaces with 10,000 connections cost: go test -tags cost -run TestCost -v ./internal/observe
func TestCost(t *testing.T) {
	const namespaces, connections, window = 200, 50, 20 * time.Second
	paths, clients := make([]string, namespaces), make([]net.Conn, namespaces)
	for i := range paths {
		paths[i], clients[i] = crowd(t, connections)
	}
	before := resident(t)
	watches := make([]*Watch, namespaces)
	for i, path := range paths {
		w, err := Open(path, Options{Shared: true})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		watches[i] = w
	}
	measure := func(what string) {
		from := used(t)
		time.Sleep(window)
		t.Logf("%s: %.3f %% of a core, %s resident, of which the connections are %s", what,
			100*(used(t)-from).Seconds()/window.Seconds(), resident(t), before)
	}
	measure("200 open, none begun")
	for _, w := range watches[:20] {
		if err := w.Begin(time.Now(), "test"); err != nil {
			t.Fatal(err)
		}
	}
	if open := watches[0].Peek().Open; open != connections {
		t.Errorf("%d connections; want %d", open, connections)
	}
	measure("20 of them begun, idle")
	for _, c := range clients[:20] {
		if _, err := c.Write([]byte("request")); err != nil {
			t.Fatal(err)
		}
	}
	measure("20 of them begun, each with a request in flight")
	for _, w := range watches {
		if err := w.Start(); err != nil {
			t.Fatal(err)
		}
	}
	measure("all started, 20 of them begun")
}
