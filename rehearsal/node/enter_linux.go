package node

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Enter makes the folder root the file system of this process, which was started with Command.Namespaces, and becomes the
// program args in the folder dir of it. What the program writes is kept in memory, below the empty folder scratch, until
// it and its children have ended. /sys, /dev and the names of hosts are this machine's. It returns an error, or not at all.
//
// It is not a sandbox: the program has the rights of the user who rehearses.
func Enter(root, scratch, dir string, args []string) error {
	runtime.LockOSThread() // the parent-death signal is one thread's
	if err := assemble(root, scratch); err != nil {
		return err
	}
	files := map[string][]byte{}
	for _, name := range []string{"/etc/hosts", "/etc/resolv.conf"} {
		if text, err := os.ReadFile(name); err == nil { // a machine may have none
			files[name] = text
		}
	}
	if err := unix.Chroot(filepath.Join(scratch, "merged")); err != nil {
		return fmt.Errorf("enter the image: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return fmt.Errorf("enter the image: %w", err)
	}
	for name, text := range files {
		_ = os.Remove(name) // a link, or absent
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return fmt.Errorf("write %s of the image: %w", name, err)
		}
		if err := os.WriteFile(name, text, 0o644); err != nil {
			return fmt.Errorf("write %s of the image: %w", name, err)
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { // as container runtimes do
		return fmt.Errorf("make the working folder: %w", err)
	}
	if err := os.Chdir(dir); err != nil {
		return fmt.Errorf("enter the working folder: %w", err)
	}
	program, err := exec.LookPath(args[0])
	if err != nil {
		return fmt.Errorf("start the image's program: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("set the parent-death signal: %w", err)
	}
	if err := syscall.Exec(program, args, os.Environ()); err != nil {
		return fmt.Errorf("start %s of the image: %w", program, err)
	}
	return nil
}

// assemble mounts the image's files, below a writable layer in memory, on scratch/merged.
func assemble(root, scratch string) error {
	mount := func(source, target, kind string, flags uintptr, options string) error {
		if err := unix.Mount(source, target, kind, flags, options); err != nil {
			return fmt.Errorf("mount %s on %s: %w", source, target, err)
		}
		return nil
	}
	if err := mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := mount("tmpfs", scratch, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"); err != nil {
		return err
	}
	if err := os.Chdir(scratch); err != nil { // overlay's options take paths without colons and commas
		return err
	}
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(name, 0o755); err != nil {
			return err
		}
	}
	if err := mount(root, "lower", "", unix.MS_BIND, ""); err != nil {
		return err
	}
	if err := mount("overlay", "merged", "overlay", 0, "lowerdir=lower,upperdir=upper,workdir=work,userxattr"); err != nil {
		return err
	}
	merged, err := os.OpenRoot("merged")
	if err != nil {
		return err
	}
	defer func() { _ = merged.Close() }()
	for _, name := range []string{"proc", "sys", "dev"} {
		if err := merged.MkdirAll(name, 0o755); err != nil {
			return fmt.Errorf("the image's /%s: %w", name, err)
		}
		if info, err := merged.Lstat(name); err != nil || !info.IsDir() {
			return fmt.Errorf("the image's /%s is not a folder", name)
		}
		target := filepath.Join("merged", name)
		// The kernel refuses a new /proc where an engine hides parts of the present one.
		if name == "proc" && unix.Mount("proc", target, "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "") == nil {
			continue
		}
		if err := mount("/"+name, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return err
		}
	}
	return nil
}
