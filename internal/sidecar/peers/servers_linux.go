package peers

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// ApacheModules is the folder of the modules of an Apache that Find has found: unpacked by lab/peers/install, or the
// system's.
func ApacheModules(apache string) string {
	const modules = "/usr/lib/apache2/modules"
	unpacked := filepath.Join(filepath.Dir(apache), "..", "root", modules)
	if _, err := os.Stat(unpacked); err == nil {
		return unpacked
	}
	return modules
}

// NotRoot is a command in a user namespace of its own, in which root has no special rights: PostgreSQL refuses to run
// as root.
func NotRoot(path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	if os.Getuid() != 0 {
		return cmd
	}
	const user = 1000
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: user, HostID: 0, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: user, HostID: 0, Size: 1}},
		Credential:  &syscall.Credential{Uid: user, Gid: user, NoSetGroups: true},
	}
	return cmd
}
