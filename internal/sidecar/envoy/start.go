package envoy

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lastcall-dev/lastcall/internal/sidecar/process"
)

// DefaultStartTimeout is how long an Envoy may take until it serves. With thousands of clusters it takes seconds.
const DefaultStartTimeout = time.Minute

// running is Envoy's process; nil when it is not ours.
func (p *Plane) running() *process.Child {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.child
}

// follow follows Envoy's process to its end.
func (p *Plane) follow(c *process.Child) {
	p.mu.Lock()
	p.child = c
	p.mu.Unlock()
	p.log.Info("Envoy started", "pid", c.Pid(), "admin", p.o.Admin)
	p.work.Go(func() {
		if <-c.Done(); p.running() != c {
			return // replaced
		}
		_ = groupEnds(p.life, c)
		p.awaitDelivery()
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.child == c { // else replaced meanwhile
			close(p.exited)
		}
	})
}

// adminIsFree prevents the use of another program's Envoy instead of our own.
func (o *Options) adminIsFree() error {
	path, isUnix := strings.CutPrefix(o.Admin, "unix:")
	if isUnix {
		if conn, err := net.Dial("unix", path); err == nil {
			_ = conn.Close()
			return fmt.Errorf("envoy's admin address %s is taken; choose another by proxyAdminPort", o.Admin)
		}
		return nil
	}
	ln, err := net.Listen("tcp", o.Admin)
	if err != nil {
		return fmt.Errorf("envoy's admin address (choose another by proxyAdminPort): %w", err)
	}
	return ln.Close()
}

// start runs Envoy.
func (o *Options) start() (*process.Child, error) {
	path, err := exec.LookPath(o.Path)
	if err != nil {
		return nil, fmt.Errorf("find envoy (--envoy-path): %w", err)
	}
	config := o.Config
	var bootstrap *os.File
	if config == "" {
		if bootstrap, err = o.bootstrap(); err != nil {
			return nil, fmt.Errorf("write envoy's bootstrap: %w", err)
		}
		defer func() { _ = bootstrap.Close() }()
		config = "/dev/fd/3"
	}
	cmd := exec.Command(path, o.args(config)...)
	if bootstrap != nil {
		cmd.ExtraFiles = []*os.File{bootstrap}
	}
	cmd.Stdout, cmd.Stderr = cmp.Or(o.Stdout, io.Writer(os.Stdout)), cmp.Or(o.Stderr, io.Writer(os.Stderr))
	cmd.WaitDelay = time.Second // its children may keep its outputs open
	return process.Start(cmd)
}

// bootstrap writes our own configuration to a file in memory: there may be no writable folder, and nothing is left
// behind. In a pod it is visible at the admin API's /config_dump.
func (o *Options) bootstrap() (*os.File, error) {
	b, err := o.Bootstrap.Render(o.Admin)
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("envoy.json", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "envoy.json")
	if _, err = f.Write(b); err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// args are Istio's, of pkg/envoy/proxy.go.
func (o *Options) args(config string) []string {
	args := []string{
		"--config-path", config,
		"--drain-time-s", seconds(o.DrainTime),
		"--drain-strategy", "immediate",
		"--file-flush-interval-msec", "1000",
		"--allow-unknown-static-fields",
		"--disable-hot-restart",
		"-l", cmp.Or(o.LogLevel, "warning"),
	}
	if o.Concurrency > 0 {
		args = append(args, "--concurrency", strconv.Itoa(o.Concurrency))
	}
	return append(args, o.Args...)
}

func seconds(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }

// dying reports whether Envoy is exiting: the kernel closes the sockets of a process some time before its parent is
// notified, and connections that end this way were not complete.
func dying(c *process.Child) bool {
	fields := process.Stat(c.Pid())
	if len(fields) == 0 {
		_, err := os.Stat("/proc/self/stat")
		return err == nil // reaped; otherwise there is no /proc here
	}
	const exiting = 0x4 // PF_EXITING
	if len(fields) < 7 {
		return false
	}
	flags, _ := strconv.ParseUint(fields[6], 10, 64)
	return flags&exiting != 0
}

// mainThreadTime is the processor time of Envoy's main thread, which serves its admin API; false where Envoy is not
// ours, or /proc lacks it.
func mainThreadTime(c *process.Child) (time.Duration, bool) {
	if c == nil {
		return 0, false
	}
	b, err := os.ReadFile("/proc/" + strconv.Itoa(c.Pid()) + "/schedstat")
	if err != nil {
		return 0, false
	}
	first, _, _ := bytes.Cut(b, []byte(" "))
	ns, err := strconv.ParseInt(string(first), 10, 64)
	return time.Duration(ns), err == nil
}
