//go:build e2e

package mesh

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"
)

// outcome of a conversation, as lab/e2e/talk prints it.
type outcome struct {
	Error        string
	Took         float64
	LastByte     time.Time
	Beside, Lost int
}

// talking is the program lab/e2e/talk at work, in the pod client of the namespace or outside the mesh.
type talking struct {
	t     *testing.T
	stdin io.Closer
	out   *bufio.Scanner
	cmd   *exec.Cmd
	err   *tail
}

// tail is the end of what a program wrote.
type tail struct{ text []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.text = append(t.text, p...)
	t.text = t.text[max(0, len(t.text)-2000):]
	return len(p), nil
}

func (n *namespace) talk(inside bool, args ...string) *talking {
	n.T.Helper()
	cmd := exec.Command(*talk, args...)
	if inside {
		cmd = exec.Command("kubectl", append([]string{"exec", "--stdin", "--namespace", n.Name, "client", "--container", "client", "--", "/talk"}, args...)...)
	}
	stdin, err := cmd.StdinPipe()
	must.Do(n.T, err)
	stdout, err := cmd.StdoutPipe()
	must.Do(n.T, err)
	c := &talking{t: n.T, stdin: stdin, out: bufio.NewScanner(stdout), cmd: cmd, err: &tail{}}
	cmd.Stderr = c.err
	must.Do(n.T, cmd.Start())
	n.T.Cleanup(func() { _ = stdin.Close(); _ = cmd.Process.Kill() })
	return c
}

// begun waits until the client has begun.
func (c *talking) begun() {
	c.t.Helper()
	if !c.out.Scan() || c.out.Text() != "begun" {
		c.t.Fatalf("%v: %q\n%s", c.cmd.Args, c.out.Text(), c.err.text)
	}
}

// result waits for it, after ending the client's input if end is set.
func (c *talking) result(into any, end bool) error {
	if end {
		_ = c.stdin.Close()
	}
	if !c.out.Scan() {
		return errors.Join(c.cmd.Wait(), fmt.Errorf("%v: no result\n%s", c.cmd.Args, c.err.text))
	}
	return errors.Join(json.Unmarshal(c.out.Bytes(), into), c.cmd.Wait())
}
