package nettest

import (
	"bytes"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/lastcall-dev/lastcall/internal/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWire(t *testing.T) {
	n := New(t)
	outside := n.Client.AddAddress(t, "192.0.2.7/32")
	n.Pod.Answer(t, 8080, func(net.Conn) string { return "pod" })
	n.Client.Answer(t, 80, func(net.Conn) string { return "client" })
	for _, c := range []struct {
		from        *Namespace
		to, answers string
	}{
		{n.Client, n.Pod.TCP4(8080), "pod"},
		{n.Client, n.Pod.TCP6(8080), "pod"},
		{n.Pod, n.Client.TCP4(80), "client"},
		{n.Pod, n.Client.TCP6(80), "client"},
		{n.Pod, outside.String() + ":80", "client"},
		{n.Pod, "127.0.0.1:8080", "pod"},
	} {
		if got := c.from.Receive(t, netip.Addr{}, c.to); got != c.answers {
			t.Errorf("from %s to %s: %q; want %q", c.from.Name, c.to, got, c.answers)
		}
	}
}

func TestTwoAtOnce(t *testing.T) {
	one, two := New(t), New(t)
	one.Pod.Listen(t, "tcp", ":8080")
	two.Pod.Listen(t, "tcp", ":8080")
}

func TestStartAs(t *testing.T) {
	n := New(t)
	var out bytes.Buffer
	cmd := exec.Command("sh", "-c", "id -u; id -g; readlink /proc/self/ns/net")
	cmd.Stdout = &out
	must.Do(t, n.Pod.As(1337, 1338).Start(cmd))
	must.Do(t, cmd.Wait())
	inside, err := os.Readlink(threadNamespace)
	must.Do(t, err)
	if got := strings.Fields(out.String()); len(got) != 3 || got[0] != "1337" || got[1] != "1338" || got[2] == inside {
		t.Errorf("the child says %q; want 1337, 1338 and a namespace other than %s", got, inside)
	}
}

func TestThreadComesHome(t *testing.T) {
	n := New(t)
	inode := func(path string) uint64 {
		var stat syscall.Stat_t
		must.Do(t, syscall.Stat(path, &stat))
		return stat.Ino
	}
	home := inode("/proc/self/ns/net")
	for range 50 {
		err := n.Pod.As(1337, 1337).Do(func() error {
			if got := inode(threadNamespace); got == home || got != inode(n.Pod.Path()) {
				t.Errorf("in namespace %d, home is %d, the pod's is %d", got, home, inode(n.Pod.Path()))
			}
			if uid, _ := unix.SetfsuidRetUid(-1); uid != 1337 {
				t.Errorf("user %d; want 1337", uid)
			}
			return nil
		})
		must.Do(t, err)
	}
	threads, err := os.ReadDir("/proc/self/task")
	must.Do(t, err)
	for _, thread := range threads {
		if got := inode("/proc/self/task/" + thread.Name() + "/ns/net"); got != home {
			t.Errorf("thread %s stayed in namespace %d", thread.Name(), got)
		}
	}
}
