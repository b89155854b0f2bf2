package node

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// initName is this program's name when it is to become a container's PID 1.
const initName = "lastcall-rehearsal-init"

// asInit makes cmd start this program first, which becomes cmd's in the new namespaces.
func asInit(cmd *exec.Cmd) {
	cmd.Args = append([]string{initName, cmd.Path}, cmd.Args...)
	cmd.Path = "/proc/self/exe"
}

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
