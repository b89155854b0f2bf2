package strategy

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/httpbin/httpbintest"
	"github.com/lastcall-dev/lastcall/rehearsal/node"
)

func TestMain(m *testing.M) { httpbintest.Main(m) }

func env(t *testing.T) *Env {
	t.Helper()
	n := node.New()
	t.Cleanup(n.Close)
	self := ""
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if self = filepath.Join(dir, "lastcallctl"); checkProgram(self) == nil {
			break
		}
	}
	return &Env{Node: n, Ports: &node.Ports{}, Programs: Programs{Self: self}, Grace: 5 * time.Second, MaxDelay: 10 * time.Second}
}
