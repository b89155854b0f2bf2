// Package leak fails a package's tests when goroutines are left behind. It is for the public
// packages, whose tests may import nothing but the standard library: an importer's go.sum lists what
// they import. All other packages use go.uber.org/goleak.
package leak

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// patience is how long goroutines have to end after the tests. They only have to be scheduled.
const patience = 10 * time.Second

// Main runs the tests, for TestMain. Those that are parallel wait for timers and clients; they need no processor each,
// so 24 run at a time unless go test has -parallel.
func Main(m *testing.M) {
	if err := flag.Set("test.parallel", "24"); err != nil {
		panic(err)
	}
	code := m.Run()
	if left := await(patience); code == 0 && len(left) > 0 {
		fmt.Fprintf(os.Stderr, "leak: %d goroutines are left after the tests:\n\n%s\n", len(left), strings.Join(left, "\n\n"))
		code = 1
	}
	os.Exit(code)
}

// await returns the stacks of the goroutines that are left after patience.
func await(patience time.Duration) []string {
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		runtime.Gosched()
		if left := others(); len(left) == 0 || time.Now().After(end) {
			return left
		}
	}
}

// others returns the stacks of all goroutines but the calling one and those of the runtime and of package testing.
func others() []string {
	all := make([]byte, 1<<22)
	all = all[:runtime.Stack(all, true)]
	var out []string
	for _, stack := range strings.Split(strings.TrimSpace(string(all)), "\n\n")[1:] {
		if !strings.Contains(stack, "os/signal.loop") && !strings.Contains(stack, "testing.(*T).Run") &&
			!strings.Contains(stack, "testing.(*M).startAlarm") {
			out = append(out, stack)
		}
	}
	return out
}
