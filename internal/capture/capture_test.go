package capture

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/google/nftables"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/lastcall-dev/lastcall/internal/nettest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scene is a pod with an app and what stands for the pipe, and a client that is also the world outside.
type scene struct {
	*nettest.Net
	outside map[family]netip.Addr // one more address of the client
}

const appPort, otherPort = 8080, 8081

func newScene(t *testing.T) *scene {
	s := &scene{Net: nettest.New(t)}
	s.outside = map[family]netip.Addr{
		ipv4: s.Client.AddAddress(t, "192.0.2.7/32"),
		ipv6: s.Client.AddAddress(t, "2001:db8::7/128"),
	}
	for port, name := range map[int]string{15006: "inbound", 15001: "outbound"} {
		s.serve(t, s.Pod, port, func(c *net.TCPConn) string { return name + " " + originalDst(c) })
	}
	for _, port := range []int{appPort, otherPort, 15020, 15021, 15090} {
		s.serve(t, s.Pod, port, func(*net.TCPConn) string { return "app" })
	}
	for _, port := range []int{80, 443, 15020} {
		s.serve(t, s.Client, port, func(*net.TCPConn) string { return "world" })
	}
	return s
}

// serve answers each connection with a line, and waits for its goroutine when the test ends.
func (s *scene) serve(t *testing.T, at *nettest.Namespace, port int, line func(*net.TCPConn) string) {
	ln := at.Listen(t, "tcp", fmt.Sprintf(":%d", port))
	done := make(chan struct{})
	t.Cleanup(func() { _ = ln.Close(); <-done })
	go func() {
		defer close(done)
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, line(conn.(*net.TCPConn)))
			_ = conn.Close()
		}
	}()
}

// originalDst asks the kernel where a connection wanted to go.
func originalDst(c *net.TCPConn) string {
	raw, err := c.SyscallConn()
	if err != nil {
		return err.Error()
	}
	answer := ""
	_ = raw.Control(func(fd uintptr) {
		// Both structures begin with the family and the port.
		var sa unix.RawSockaddrInet6
		length := uint32(unsafe.Sizeof(sa))
		level := unix.SOL_IP
		if c.LocalAddr().(*net.TCPAddr).IP.To4() == nil {
			level = unix.SOL_IPV6
		}
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, uintptr(level), unix.SO_ORIGINAL_DST,
			uintptr(unsafe.Pointer(&sa)), uintptr(unsafe.Pointer(&length)), 0)
		if errno != 0 {
			answer = errno.Error()
			return
		}
		address := netip.AddrFrom16(sa.Addr)
		if level == unix.SOL_IP {
			address = netip.AddrFrom4((*unix.RawSockaddrInet4)(unsafe.Pointer(&sa)).Addr)
		}
		port := (*[2]byte)(unsafe.Pointer(&sa.Port))
		answer = netip.AddrPortFrom(address, uint16(port[0])<<8|uint16(port[1])).String()
	})
	return answer
}

// ask connects and returns who has answered.
func ask(t *testing.T, from *nettest.Namespace, source netip.Addr, to netip.AddrPort) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	conn, err := from.DialFrom(ctx, source, "tcp", to.String())
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(3 * time.Second))
	answer, err := io.ReadAll(conn)
	if err != nil {
		return err.Error()
	}
	return string(answer)
}

func (s *scene) install(t *testing.T, flags map[string]string) {
	t.Helper()
	c := resolve(t, Input{Flags: flags})
	if err := s.Pod.Do(func() error { return Install(c) }); err != nil {
		t.Fatal(err)
	}
}

func TestCapture(t *testing.T) {
	s := newScene(t)
	none := netip.Addr{}
	// Who connects from where to what, and who answers: app, world, or the pipe with the original destination.
	type row struct {
		name   string
		from   *nettest.Namespace
		source netip.Addr
		to     netip.Addr
		port   uint16
		want   string // {} is the destination
	}
	for _, c := range []struct {
		name  string
		flags map[string]string
		rows  func(f family, pod, client, outside, local netip.Addr) []row
	}{
		{"everything", nil, func(f family, pod, client, outside, local netip.Addr) []row {
			rows := []row{
				{"inbound", s.Client, none, pod, appPort, "inbound {}"},
				{"inbound to a port on which nobody listens", s.Client, none, pod, 9999, "inbound {}"},
				{"the status port", s.Client, none, pod, 15020, "app"},
				{"the readiness port", s.Client, none, pod, 15021, "app"},
				{"the metrics port", s.Client, none, pod, 15090, "app"},
				{"the inbound port itself", s.Client, none, pod, 15006, "inbound {}"},
				{"the outbound port itself", s.Client, none, pod, 15001, "outbound {}"},
				{"outbound", s.Pod, none, client, 80, "outbound {}"},
				{"outbound as somebody", s.Pod.As(1000, 1000), none, outside, 443, "outbound {}"},
				{"outbound to another pod's status port", s.Pod, none, client, 15020, "outbound {}"},
				{"the proxy's user", s.Pod.As(1337, 1000), none, client, 80, "world"},
				{"the proxy's group", s.Pod.As(1000, 1337), none, client, 80, "world"},
				{"the app calls itself by the pod's address", s.Pod, none, pod, appPort, "app"},
				{"the app calls itself by loopback", s.Pod, none, local, appPort, "app"},
				{"the proxy calls the app", s.Pod.As(1337, 1337), none, local, appPort, "app"},
				{"the proxy calls the app by the pod's address", s.Pod.As(1337, 1337), none, pod, appPort, "app"},
			}
			if f == ipv4 {
				rows = append(rows,
					row{"the proxy calls the app as Istio's does", s.Pod.As(1337, 1337), source[f].Addr(), local, appPort, "app"},
					row{"a proxy of another user calls the app", s.Pod, source[f].Addr(), local, appPort, "app"})
			}
			return rows
		}},
		{"exclusions", map[string]string{
			"exclude-inbound-ports":   "8080",
			"exclude-outbound-ports":  "443",
			"exclude-outbound-ranges": "10.77.0.0/24,198.51.100.0/24,fd00:77::/64,2001:db8:ffff::/48",
		}, func(_ family, pod, client, outside, _ netip.Addr) []row {
			return []row{
				{"an excluded port", s.Client, none, pod, appPort, "app"},
				{"another port", s.Client, none, pod, otherPort, "inbound {}"},
				{"an excluded outbound port", s.Pod, none, outside, 443, "world"},
				{"an excluded range", s.Pod, none, client, 80, "world"},
				{"neither", s.Pod, none, outside, 80, "outbound {}"},
			}
		}},
		{"inclusions", map[string]string{
			"include-inbound-ports":   "8080,15020",
			"include-outbound-ports":  "443",
			"include-outbound-ranges": "192.0.2.7,2001:db8::/32",
		}, func(_ family, pod, client, outside, _ netip.Addr) []row {
			return []row{
				{"an included port", s.Client, none, pod, appPort, "inbound {}"},
				{"the status port is never captured", s.Client, none, pod, 15020, "app"},
				{"another port", s.Client, none, pod, otherPort, "app"},
				{"an included range", s.Pod, none, outside, 80, "outbound {}"},
				{"an included outbound port", s.Pod, none, client, 443, "outbound {}"},
				{"neither", s.Pod, none, client, 80, "world"},
			}
		}},
		{"what is excluded from what is included", map[string]string{
			"include-inbound-ports":   "8080,8081",
			"exclude-inbound-ports":   "8081",
			"include-outbound-ports":  "80,443",
			"exclude-outbound-ports":  "443",
			"include-outbound-ranges": "0.0.0.0/0,::/0",
			"exclude-outbound-ranges": "192.0.2.0/24,2001:db8::/32",
		}, func(_ family, pod, client, outside, _ netip.Addr) []row {
			return []row{
				{"included", s.Client, none, pod, appPort, "inbound {}"},
				{"excluded", s.Client, none, pod, otherPort, "app"},
				{"an excluded outbound port", s.Pod, none, client, 443, "world"},
				{"an excluded range", s.Pod, none, outside, 80, "world"},
				{"everything else", s.Pod, none, client, 80, "outbound {}"},
			}
		}},
		{"nothing inbound, nothing outbound", map[string]string{"include-inbound-ports": "", "include-outbound-ranges": ""},
			func(_ family, pod, client, _, _ netip.Addr) []row {
				return []row{
					{"inbound", s.Client, none, pod, appPort, "app"},
					{"outbound", s.Pod, none, client, 80, "world"},
				}
			}},
		{"interfaces", map[string]string{"exclude-interfaces": "net1," + nettest.Interface}, func(_ family, pod, client, _, _ netip.Addr) []row {
			return []row{
				{"inbound", s.Client, none, pod, appPort, "app"},
				{"outbound", s.Pod, none, client, 80, "world"},
			}
		}},
		{"a virtual machine behind the interface", map[string]string{"virtual-interfaces": nettest.Interface, "exclude-outbound-ports": "8081"},
			func(_ family, pod, _, _, _ netip.Addr) []row {
				return []row{
					{"is on its way out", s.Client, none, pod, appPort, "outbound {}"},
					{"unless excluded", s.Client, none, pod, otherPort, "app"},
				}
			}},
		{"another proxy", map[string]string{"inbound-port": "15001", "outbound-port": "15006", "proxy-uid": "2000,2001", "proxy-gid": "3000"},
			func(_ family, pod, client, _, _ netip.Addr) []row {
				return []row{
					{"inbound", s.Client, none, pod, appPort, "outbound {}"},
					{"its user", s.Pod.As(2001, 1), none, client, 80, "world"},
					{"its group", s.Pod.As(1, 3000), none, client, 80, "world"},
					{"Istio's user", s.Pod.As(1337, 1337), none, client, 80, "inbound {}"},
				}
			}},
		{"loopback, when it is asked for", map[string]string{"include-outbound-ranges": "127.0.0.0/8,::1/128"},
			func(f family, _, _, _, local netip.Addr) []row {
				rows := []row{{"never the address that all use", s.Pod, none, local, appPort, "app"}}
				if f == ipv4 {
					other := netip.MustParseAddr("127.0.0.2")
					rows = append(rows,
						row{"another", s.Pod, none, other, appPort, "outbound {}"},
						row{"not from the proxy's address", s.Pod, source[f].Addr(), other, appPort, "app"})
				}
				return rows
			}},
		{"off", map[string]string{"mode": "NONE"}, func(_ family, pod, client, _, _ netip.Addr) []row {
			return []row{
				{"inbound", s.Client, none, pod, appPort, "app"},
				{"outbound", s.Pod, none, client, 80, "world"},
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.install(t, c.flags)
			rows := map[family][]row{
				ipv4: c.rows(ipv4, s.Pod.IPv4, s.Client.IPv4, s.outside[ipv4], loopback[ipv4].Addr()),
				ipv6: c.rows(ipv6, s.Pod.IPv6, s.Client.IPv6, s.outside[ipv6], loopback[ipv6].Addr()),
			}
			for f, rows := range rows {
				for _, r := range rows {
					to := netip.AddrPortFrom(r.to, r.port)
					want := strings.ReplaceAll(r.want, "{}", to.String())
					if got := ask(t, r.from, r.source, to); got != want {
						t.Errorf("%v, %s: %v answered %q, want %q", f, r.name, to, got, want)
					}
				}
			}
		})
	}
}

// While the rules are replaced again and again, nobody comes past them.
func TestReplacedAtomically(t *testing.T) {
	s := newScene(t)
	s.install(t, nil)
	done := make(chan error, 1)
	go func() {
		c, err := Resolve(Input{Flags: map[string]string{"exclude-inbound-ports": "81"}})
		for i := 0; i < 40 && err == nil; i++ {
			err = s.Pod.Do(func() error { return Install(c) })
		}
		done <- err
	}()
	for asked := 0; ; asked++ {
		to := netip.AddrPortFrom(s.Pod.IPv4, appPort)
		if got, want := ask(t, s.Client, netip.Addr{}, to), "inbound "+to.String(); got != want {
			t.Errorf("connection %d: %q, want %q", asked, got, want)
		}
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
			t.Logf("%d connections meanwhile", asked+1)
			return
		default:
		}
	}
}

func TestRemove(t *testing.T) {
	s := newScene(t)
	tables := func() (names []string) {
		err := s.Pod.Do(func() error {
			conn, err := nftables.New()
			if err != nil {
				return err
			}
			tables, err := conn.ListTables()
			for _, table := range tables {
				names = append(names, table.Name)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	foreign := func() error {
		conn, err := nftables.New()
		if err != nil {
			return err
		}
		conn.AddTable(&nftables.Table{Name: "other", Family: nftables.TableFamilyIPv4})
		return conn.Flush()
	}
	if err := errors.Join(s.Pod.Do(Remove), s.Pod.Do(foreign)); err != nil {
		t.Fatalf("there was nothing to remove: %v", err)
	}
	s.install(t, nil)
	s.install(t, nil)
	if got := strings.Join(tables(), " "); got != "other lastcall lastcall" {
		t.Errorf("tables after two runs: %s", got)
	}
	if err := s.Pod.Do(Remove); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(tables(), " "); got != "other" {
		t.Errorf("tables after it is undone: %s", got)
	}
	if got := ask(t, s.Client, netip.Addr{}, netip.AddrPortFrom(s.Pod.IPv6, appPort)); got != "app" {
		t.Errorf("the client got %q, want the app", got)
	}
}

// powerless runs f on a thread that may not change the network: capabilities are a thread's own, and what is permitted
// still can be taken back.
func powerless(f func() error) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var all [2]unix.CapUserData
	if err := unix.Capget(&header, &all[0]); err != nil {
		return err
	}
	some := all
	some[0].Effective &^= 1 << unix.CAP_NET_ADMIN
	if err := unix.Capset(&header, &some[0]); err != nil {
		return err
	}
	err := f()
	return errors.Join(err, unix.Capset(&header, &all[0]))
}

// A slip on a machine must not cut it off. The thread could do no harm if it went wrong.
func TestMachineIsRefused(t *testing.T) {
	n := nettest.New(t)
	if err := n.Pod.Do(func() error {
		if onMachine() {
			t.Error("a pod passes for the machine")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if !onMachine() {
		t.Log("these tests run in a container: there is no machine to refuse")
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := powerless(func() error { return Install(resolve(t, Input{})) })
	if !errors.Is(err, errMachine) || !strings.Contains(err.Error(), "--whole-machine") {
		t.Errorf("install on the machine: %v", err)
	}
	c := resolve(t, Input{})
	c.WholeMachine = true
	if err := powerless(func() error { return Install(c) }); !errors.Is(err, syscall.EPERM) {
		t.Errorf("install on the machine, as asked for: %v", err)
	}
}

func TestRefused(t *testing.T) {
	n := nettest.New(t)
	without := func(f func() error) error { return n.Pod.Do(func() error { return powerless(f) }) }
	c := resolve(t, Input{})
	err := without(func() error { return Install(c) })
	if !errors.Is(err, syscall.EPERM) || !strings.HasPrefix(err.Error(), "install the capture: ") || !strings.Contains(err.Error(), "needs CAP_NET_ADMIN") {
		t.Errorf("install: %v", err)
	}
	if err := without(Remove); !errors.Is(err, syscall.EPERM) || !strings.HasPrefix(err.Error(), "remove the capture: ") {
		t.Errorf("remove: %v", err)
	}

	// One rule that the kernel refuses, the last: nothing is there afterwards.
	refused := c.rules(ipv4)
	last := &refused.chains[2]
	last.rules = append(last.rules, rule{nil, verdict{jump: "nowhere"}})
	err = n.Pod.Do(func() error {
		conn, err := nftables.New()
		if err != nil {
			return err
		}
		if err := refused.add(conn); err != nil {
			return err
		}
		err = explain(conn.Flush())
		if tables, listErr := conn.ListTables(); listErr != nil || len(tables) > 0 {
			t.Errorf("tables after a refusal: %v, %v", tables, listErr)
		}
		return err
	})
	if !errors.Is(err, syscall.ENOENT) || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "CONFIG_NFT_REDIR") {
		t.Errorf("a rule that the kernel does not know: %v", err)
	}
}
