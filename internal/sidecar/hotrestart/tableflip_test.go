package hotrestart

import (
	"encoding/gob"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"
)

// tableflip has no typed error for a predecessor that has not exited: upgrade compares the text. The test runs this
// program as a successor of itself.
func TestTableflipNamesALivingParent(t *testing.T) {
	if isSuccessor() {
		h, err := Begin(Options{})
		if err == nil {
			err = h.Ready()
		}
		for late := time.Now().Add(5 * time.Second); err == nil || err.Error() != parentAlive; err = h.upgrader.Upgrade() {
			if time.Now().After(late) { // Ready takes effect a moment after it has returned
				fmt.Printf("error %v, want %q\n", err, parentAlive)
				os.Exit(1)
			}
		}
		os.Exit(0) // tableflip's goroutines end with the process
	}
	fromSuccessor, ready, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer fromSuccessor.Close()
	names, toSuccessor, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer toSuccessor.Close() // the successor takes this for the exit of its parent
	if err := gob.NewEncoder(toSuccessor).Encode([][]string{}); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestTableflipNamesALivingParent$")
	cmd.Env = append(os.Environ(), sentinel+"7DIU3=yes")
	cmd.ExtraFiles = []*os.File{ready, names}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	_, _ = ready.Close(), names.Close()
}
