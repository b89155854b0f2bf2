package node

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// initName is this program's name when it is to become a container's PID 1.
const initName = "lastcall-rehearsal-init"

// A program cannot run code between the kernel's clone and the new program's start. So it starts itself, and this
// function comes before its main.
func init() {
	if len(os.Args) > 2 && os.Args[0] == initName {
		err := become(os.Args[1], os.Args[2:])
		fmt.Fprintf(os.Stderr, "start %s: %v\n", os.Args[1], err)
		os.Exit(127)
	}
}

// become gives this process, PID 1 of a new PID namespace, the /proc of it, and becomes the program. It returns an
// error, or not at all.
func become(program string, args []string) error {
	runtime.LockOSThread() // capabilities and the parent-death signal are one thread's
	// Where an engine hides parts of /proc the kernel refuses a new one. In the old one /proc/self is right, too.
	if unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") == nil {
		_ = unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("give up capabilities: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("set the parent-death signal: %w", err)
	}
	return syscall.Exec(program, args, os.Environ())
}

// Within is a command that runs c in the container whose PID 1 p is, as an exec hook: in its namespaces and working
// folder, with the environment that c has. It is c itself if p has no namespaces, or if there is no nsenter
// (util-linux, busybox): a process with several threads, as each of Go's, cannot enter a user namespace.
func (p *Process) Within(c Command) Command {
	if _, err := exec.LookPath("nsenter"); err != nil || p.init != Namespace {
		return c
	}
	enter := []string{"nsenter", "--target", strconv.Itoa(p.PID())}
	if p.cmd.SysProcAttr.Cloneflags&syscall.CLONE_NEWUSER != 0 {
		enter = append(enter, "--user", "--preserve-credentials")
	}
	c.Args = append(append(enter, "--mount", "--pid", "--wd", "--"), c.Args...)
	return c
}

// handlers reads whether a process handles a signal, and its program's name.
func handlers(pid int, s syscall.Signal) (handled bool, program string) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return true, "" // it has ended
	}
	for line := range bytes.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(string(line)), ":\t")
		switch name {
		case "Name":
			program = value
		case "State":
			if strings.HasPrefix(value, "Z") {
				return true, "" // it has ended
			}
		case "SigCgt":
			mask, err := strconv.ParseUint(value, 16, 64)
			handled = err != nil || mask>>(s-1)&1 == 1
		}
	}
	return handled, program
}

// Init is how a process is PID 1 of a container. The kernel drops a signal for PID 1 of a PID namespace that has no
// handler for it, except SIGKILL: such a program runs until the end of the grace period.
type Init string

// The kinds.
const (
	NoInit    Init = ""          // a tool, or the built-in app
	Namespace Init = "namespace" // PID 1 of a PID namespace of its own, with a /proc of its own where that is permitted
	Imitated  Init = "imitated"  // no PID 1: this machine permits no PID namespaces. Terminate follows the kernel's rule.
)

// way is one kind of start.
type way struct {
	attributes *syscall.SysProcAttr
	init       Init
}

// Init is how the process is PID 1.
func (p *Process) Init() Init { return p.init }

// Ignored is the program of a PID 1 that ignored its stop signal; empty if it did not. It is a shell that has not
// replaced itself, or the app. It had no handler when Terminate sent the signal, or has none at Kill and still listens.
func (p *Process) Ignored() (program string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ignored {
		return ""
	}
	return p.program
}

// IgnoredCause is why a program, Ignored's, did not end at its stop signal, and how it would.
func IgnoredCause(program string, stop syscall.Signal) string {
	signal := unix.SignalName(stop)
	if slices.Contains([]string{"sh", "bash", "dash", "ash"}, program) {
		return fmt.Sprintf("%s is PID 1 and does not pass %s on, so the app runs until SIGKILL: start the app with exec, "+
			"as sh -c 'exec …', or by an init such as tini", program, signal)
	}
	return fmt.Sprintf("%s ignores %s: PID 1 of a container gets only the signals that it handles, and so it runs until "+
		"SIGKILL. Handle %s: finish the requests, then exit. A longer grace period does not help, and with an init such as "+
		"tini the app would end at once", program, signal, signal)
}

// ways are the kinds of namespaces to try, the best first.
func (c *Command) ways() []way {
	plain := syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if !c.Init {
		return []way{{&plain, NoInit}}
	}
	if c.imitate {
		return []way{{&plain, Imitated}}
	}
	asRoot, asUser := plain, plain
	asRoot.Cloneflags = syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWIPC
	asUser.Cloneflags = asRoot.Cloneflags | syscall.CLONE_NEWUSER
	asUser.UidMappings, asUser.GidMappings = same(os.Geteuid(), "uid_map"), same(os.Getegid(), "gid_map")
	asUser.GidMappingsEnableSetgroups = os.Geteuid() == 0
	asUser.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN} // to mount /proc; become gives it up
	return []way{{&asRoot, Namespace}, {&asUser, Namespace}, {&plain, Imitated}}
}

// same maps the users or groups that this process may use to themselves: all of root's, so that a server may change its
// user, and otherwise the one.
func same(own int, file string) (all []syscall.SysProcIDMap) {
	text, err := os.ReadFile("/proc/self/" + file)
	if own != 0 || err != nil {
		return []syscall.SysProcIDMap{{ContainerID: own, HostID: own, Size: 1}}
	}
	for line := range strings.Lines(string(text)) {
		var first, outside, size int
		if _, err := fmt.Sscan(line, &first, &outside, &size); err == nil {
			all = append(all, syscall.SysProcIDMap{ContainerID: first, HostID: first, Size: size})
		}
	}
	return all
}
