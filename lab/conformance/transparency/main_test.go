package transparency

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// program is lastcall, and scratch a folder for what all rows share.
var program, scratch string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	flag.Parse()
	dir, err := os.MkdirTemp("", "lastcall-transparency")
	if err == nil {
		defer os.RemoveAll(dir)
		err = os.Chmod(dir, 0o755) // the sidecar's user is not ours
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	scratch, program = dir, filepath.Join(dir, "lastcall")
	build := exec.Command("go", "build", "-tags", "nethttpomithttp2", "-o", program, "../../../cmd/lastcall") // as make build does
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build lastcall: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}
