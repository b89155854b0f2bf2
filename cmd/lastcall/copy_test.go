package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
)

// inSmallVolume runs a shell's script in a folder of its own with room for size, which
// is gone when the script has ended.
func inSmallVolume(t *testing.T, size, script string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command("sh", "-ec", "mount -t tmpfs -o size="+size+" none "+dir+"; cd "+dir+"; "+script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS} // Go makes its mounts private
	out, err := cmd.CombinedOutput()
	if os.Getuid() != 0 && err != nil {
		t.Skipf("a volume of its own needs root: %v", err)
	}
	return string(out), err
}

func TestCopyToAFullVolumeLeavesNothing(t *testing.T) {
	program, err := os.Executable() // larger than the volume
	must.Do(t, err)
	lastcall := filepath.Join(t.TempDir(), "lastcall") // testscript depends on the name
	must.Do(t, os.Symlink(program, lastcall))
	out, err := inSmallVolume(t, "1m", "echo old > lastcall; if "+lastcall+" copy .; then exit 9; fi; ls -A; cat lastcall")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(out, "no space left on device") || !strings.HasSuffix(out, "\nlastcall\nold\n") {
		t.Errorf("output and files left:\n%s", out)
	}
}

// A reader sees a complete program at any time while copies are made.
func TestCopyIsWholeAtAnyTime(t *testing.T) {
	dir := t.TempDir()
	source, dest := filepath.Join(dir, "source"), filepath.Join(dir, "dest")
	content := bytes.Repeat([]byte("lastcall"), 1<<17)
	must.Do(t, os.WriteFile(source, content, 0o755))
	must.Do(t, copyProgram(source, dest))
	var copying sync.WaitGroup
	for range 2 {
		copying.Go(func() {
			for range 20 {
				if err := copyProgram(source, dest); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 40 {
		got, err := os.ReadFile(dest)
		if err != nil || !bytes.Equal(got, content) {
			t.Errorf("a reader saw %d of %d bytes, error %v", len(got), len(content), err)
			break
		}
	}
	copying.Wait()
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 2 {
		t.Errorf("left: %v, error %v", left, err)
	}
}

// TestCaptureScripts really captures. The scripts' command pod runs another in a network namespace of its own.
func TestCaptureScripts(t *testing.T) {
	nft := peers.Need(t, "nft")
	peers.Need(t, "setpriv")
	nsenter := peers.Need(t, "nsenter")
	n := nettest.New(t)
	testscript.Run(t, testscript.Params{
		Dir: "testdata/netns",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"pod": func(ts *testscript.TestScript, neg bool, args []string) {
				err := ts.Exec(nsenter, append([]string{"--net=" + n.Pod.Path()}, args...)...)
				if failed := err != nil; failed != neg {
					ts.Fatalf("%q: %v", args, err)
				}
			},
		},
		Setup: func(env *testscript.Env) error {
			env.Setenv("NFT", nft)
			env.Setenv("GORACE", os.Getenv("GORACE"))
			return nil
		},
	})
}
