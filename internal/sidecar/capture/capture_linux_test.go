package capture

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/google/nftables"
	"go.uber.org/goleak"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
	sidecartcp "github.com/lastcall-dev/lastcall/internal/sidecar/tcp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestCapture(t *testing.T) {
	s := newScene(t)
	none, proxy := netip.Addr{}, source[ipv4].Addr()
	addresses := map[family]map[string]netip.Addr{
		ipv4: {"pod": s.Pod.IPv4, "client": s.Client.IPv4, "outside": s.outside[ipv4], "local": loopback[ipv4].Addr(),
			"other local": netip.MustParseAddr("127.0.0.2")},
		ipv6: {"pod": s.Pod.IPv6, "client": s.Client.IPv6, "outside": s.outside[ipv6], "local": loopback[ipv6].Addr()},
	}
	// The client, the destination, and what responds: app, world, or the pipe with the original destination.
	type row struct {
		name   string
		from   *nettest.Namespace
		source netip.Addr
		to     string // of addresses
		port   uint16
		want   string // {} is the destination
	}
	for _, c := range []struct {
		name  string
		flags map[string]string
		rows  []row
	}{
		{"by default", nil, []row{
			{"inbound", s.Client, none, "pod", appPort, "inbound {}"},
			{"outbound", s.Pod, none, "client", 80, "world"},
			{"outbound as a normal user", s.Pod.As(1000, 1000), none, "outside", 443, "world"},
		}},
		{"everything", map[string]string{"include-outbound-ranges": "*"}, []row{
			{"inbound", s.Client, none, "pod", appPort, "inbound {}"},
			{"the status port", s.Client, none, "pod", 15020, "app"},
			{"the readiness port", s.Client, none, "pod", 15021, "app"},
			{"the metrics port", s.Client, none, "pod", 15090, "app"},
			{"the inbound port itself", s.Client, none, "pod", 15006, "inbound {}"},
			{"the outbound port itself", s.Client, none, "pod", 15001, "outbound {}"},
			{"outbound", s.Pod, none, "client", 80, "outbound {}"},
			{"outbound as a normal user", s.Pod.As(1000, 1000), none, "outside", 443, "outbound {}"},
			{"outbound to another pod's status port", s.Pod, none, "client", 15020, "outbound {}"},
			{"the proxy's user", s.Pod.As(1337, 1000), none, "client", 80, "world"},
			{"the proxy's group", s.Pod.As(1000, 1337), none, "client", 80, "world"},
			{"the app calls itself by the pod's address", s.Pod, none, "pod", appPort, "app"},
			{"the app calls itself by loopback", s.Pod, none, "local", appPort, "app"},
			{"the proxy calls the app", s.Pod.As(1337, 1337), none, "local", appPort, "app"},
			{"the proxy calls the app by the pod's address", s.Pod.As(1337, 1337), none, "pod", appPort, "app"},
			{"the proxy calls the app as Istio's does", s.Pod.As(1337, 1337), proxy, "local", appPort, "app"},
			{"a proxy of another user calls the app", s.Pod, proxy, "local", appPort, "app"},
		}},
		{"exclusions", map[string]string{
			"exclude-inbound-ports":   "8080",
			"include-outbound-ranges": "*",
			"exclude-outbound-ports":  "443",
			"exclude-outbound-ranges": "10.77.0.0/24,198.51.100.0/24,fd00:77::/64,2001:db8:ffff::/48",
		}, []row{
			{"an excluded port", s.Client, none, "pod", appPort, "app"},
			{"another port", s.Client, none, "pod", otherPort, "inbound {}"},
			{"an excluded outbound port", s.Pod, none, "outside", 443, "world"},
			{"an excluded range", s.Pod, none, "client", 80, "world"},
			{"neither", s.Pod, none, "outside", 80, "outbound {}"},
		}},
		{"inclusions", map[string]string{
			"include-inbound-ports":   "8080,15020",
			"include-outbound-ports":  "443",
			"include-outbound-ranges": "192.0.2.7,2001:db8::/32",
		}, []row{
			{"an included port", s.Client, none, "pod", appPort, "inbound {}"},
			{"the status port is never captured", s.Client, none, "pod", 15020, "app"},
			{"another port", s.Client, none, "pod", otherPort, "app"},
			{"an included range", s.Pod, none, "outside", 80, "outbound {}"},
			{"an included outbound port", s.Pod, none, "client", 443, "outbound {}"},
			{"neither", s.Pod, none, "client", 80, "world"},
		}},
		{"what is excluded from what is included", map[string]string{
			"include-inbound-ports":   "8080,8081",
			"exclude-inbound-ports":   "8081",
			"include-outbound-ports":  "80,443",
			"exclude-outbound-ports":  "443",
			"include-outbound-ranges": "0.0.0.0/0,::/0",
			"exclude-outbound-ranges": "192.0.2.0/24,2001:db8::/32",
		}, []row{
			{"included", s.Client, none, "pod", appPort, "inbound {}"},
			{"excluded", s.Client, none, "pod", otherPort, "app"},
			{"an excluded outbound port", s.Pod, none, "client", 443, "world"},
			{"an excluded range", s.Pod, none, "outside", 80, "world"},
			{"everything else", s.Pod, none, "client", 80, "outbound {}"},
		}},
		{"nothing inbound, nothing outbound", map[string]string{"include-inbound-ports": "", "include-outbound-ranges": ""}, []row{
			{"inbound", s.Client, none, "pod", appPort, "app"},
			{"outbound", s.Pod, none, "client", 80, "world"},
		}},
		{"interfaces", map[string]string{"exclude-interfaces": "net1," + nettest.Interface}, []row{
			{"inbound", s.Client, none, "pod", appPort, "app"},
			{"outbound", s.Pod, none, "client", 80, "world"},
		}},
		{"a virtual machine behind the interface", map[string]string{"include-outbound-ranges": "*", "virtual-interfaces": nettest.Interface, "exclude-outbound-ports": "8081"}, []row{
			{"is outbound", s.Client, none, "pod", appPort, "outbound {}"},
			{"unless excluded", s.Client, none, "pod", otherPort, "app"},
		}},
		{"another proxy", map[string]string{"include-outbound-ranges": "*", "inbound-port": "15001", "outbound-port": "15006", "proxy-uid": "2000,2001", "proxy-gid": "3000"}, []row{
			{"inbound", s.Client, none, "pod", appPort, "outbound {}"},
			{"its user", s.Pod.As(2001, 1), none, "client", 80, "world"},
			{"its group", s.Pod.As(1, 3000), none, "client", 80, "world"},
			{"Istio's user", s.Pod.As(1337, 1337), none, "client", 80, "inbound {}"},
		}},
		{"loopback, when it is included", map[string]string{"include-outbound-ranges": "127.0.0.0/8,::1/128"}, []row{
			{"never the address that all use", s.Pod, none, "local", appPort, "app"},
			{"another", s.Pod, none, "other local", appPort, "outbound {}"},
			{"not from the proxy's address", s.Pod, proxy, "other local", appPort, "app"},
		}},
		{"off", map[string]string{"mode": "NONE"}, []row{
			{"inbound", s.Client, none, "pod", appPort, "app"},
			{"outbound", s.Pod, none, "client", 80, "world"},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.install(t, c.flags)
			for _, r := range c.rows {
				if _, isKnown := addresses[ipv4][r.to]; !isKnown {
					t.Fatalf("%s: no address is called %q", r.name, r.to)
				}
				for f, all := range addresses {
					at, isThere := all[r.to]
					if !isThere || f == ipv6 && r.source.IsValid() {
						continue // of IPv4 alone
					}
					to := netip.AddrPortFrom(at, r.port)
					want := strings.ReplaceAll(r.want, "{}", to.String())
					if got := r.from.Receive(t, r.source, to.String()); got != want {
						t.Errorf("%v, %s: %v answered %q, want %q", f, r.name, to, got, want)
					}
				}
			}
		})
	}
}

// While the rules are replaced again and again, no connection bypasses them.
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
	for tried := 0; ; tried++ {
		to := netip.AddrPortFrom(s.Pod.IPv4, appPort)
		if got, want := s.Client.Receive(t, netip.Addr{}, to.String()), "inbound "+to.String(); got != want {
			t.Errorf("connection %d: %q, want %q", tried, got, want)
		}
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
			t.Logf("%d connections meanwhile", tried+1)
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
		must.Do(t, err)
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
	must.Do(t, s.Pod.Do(Remove))
	if got := strings.Join(tables(), " "); got != "other" {
		t.Errorf("tables after it is undone: %s", got)
	}
	if got := s.Client.Receive(t, netip.Addr{}, s.Pod.TCP6(appPort)); got != "app" {
		t.Errorf("the client got %q, want the app", got)
	}
}

// The printed rules, given to the real nft, equal those of Install, rule for rule; and it reads the same.
func TestDryRunIsWhatIsInstalled(t *testing.T) {
	nft := peers.Need(t, "nft")
	run := func(t *testing.T, in *nettest.Namespace, stdin string, args ...string) string {
		t.Helper()
		var out, complaint bytes.Buffer
		cmd := exec.Command(nft, args...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &complaint
		must.Do(t, in.Start(cmd))
		if err := cmd.Wait(); err != nil {
			t.Fatalf("nft %v: %v\n%s\n%s", args, err, &complaint, stdin)
		}
		return out.String()
	}
	n := nettest.New(t)
	for name, flags := range map[string]map[string]string{
		"defaults": nil,
		"outbound": {"include-outbound-ranges": "*"},
		"off":      {"mode": "NONE"},
		"one of each": {
			"include-inbound-ports": "80", "exclude-inbound-ports": "81", "include-outbound-ports": "82", "exclude-outbound-ports": "83",
			"include-outbound-ranges": "10.0.0.0/8,fd00::/7", "exclude-outbound-ranges": "10.1.2.3,10.1.2.3/32,fd00::1",
			"exclude-interfaces": "eth1", "virtual-interfaces": "k6t-eth0",
		},
		"several of each": {
			"include-inbound-ports": "8080,80,80", "exclude-inbound-ports": "81,8181", "include-outbound-ports": "82,8282", "exclude-outbound-ports": "83,8383",
			"include-outbound-ranges": "10.0.0.0/8,10.1.0.0/16,192.168.0.0/17,255.0.0.0/8,0.0.0.0/8,fd00::/8,2001:db8::/33,ff00::/8",
			"exclude-outbound-ranges": "10.96.0.0/12,172.20.0.1,172.20.0.3,fe80::/10,fd00::/9,::1",
			"exclude-interfaces":      "eth1,net1", "virtual-interfaces": "k6t-eth0,k6t-eth1", "proxy-uid": "1337,0", "proxy-gid": "4294967294",
		},
		"every address":            {"include-outbound-ranges": "0.0.0.0/0,10.0.0.0/8,::/0", "exclude-outbound-ranges": "10.0.0.0/8"},
		"of one family, loopback":  {"include-outbound-ranges": "127.0.0.0/8,10.0.0.0/8"},
		"as many as may be needed": {"exclude-outbound-ranges": many(4000), "exclude-inbound-ports": manyPorts(2001)},
	} {
		t.Run(name, func(t *testing.T) {
			c := resolve(t, Input{Flags: flags})
			var printed strings.Builder
			must.Do(t, n.Pod.Do(func() error { return DryRun(&printed, c) }))
			for range 2 { // the second replaces the first
				run(t, n.Client, printed.String(), "-f", "-")
			}
			must.Do(t, n.Pod.Do(func() error { return Install(c) }))
			byNft, byUs := run(t, n.Client, "", "-s", "list", "ruleset"), run(t, n.Pod, "", "-s", "list", "ruleset")
			if byNft != byUs {
				t.Errorf("nft installs\n%s\nInstall installs\n%s", byNft, byUs)
			}
			// nft has its own mind about where a line ends.
			if got, want := strings.Fields(rules(printed.String())), strings.Fields(rules(byUs)); strings.Join(got, " ") != strings.Join(want, " ") {
				t.Errorf("printed\n%s\ninstalled\n%s", &printed, byUs)
			}
		})
	}
}

// rules leaves out how a table is emptied, and the names of priorities, which differ between versions of nft.
func rules(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(line, "delete "), strings.HasPrefix(line, "# "), strings.HasPrefix(line, "table ") && !strings.HasSuffix(line, "{\n"):
		default:
			lines = append(lines, strings.ReplaceAll(line, "priority dstnat", "priority -100"))
		}
	}
	return strings.Join(lines, "")
}

// many are separate ranges: every second /24 below 10.0.0.0.
func many(n int) string {
	var out []string
	for i := range n {
		out = append(out, strings.Join([]string{"10", strconv.Itoa(i / 128), strconv.Itoa(i % 128 * 2), "0/24"}, "."))
	}
	return strings.Join(out, ",")
}

func manyPorts(n int) string {
	var out []string
	for i := range n {
		out = append(out, strconv.Itoa(20000+2*i))
	}
	return strings.Join(out, ",")
}

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
		s.Pod.Answer(t, port, func(c net.Conn) string {
			to, err := sidecartcp.OriginalDestination(c.(*net.TCPConn))
			if err != nil { // it was made to this port
				return name + " " + c.LocalAddr().String()
			}
			return name + " " + to.String()
		})
	}
	for _, port := range []int{appPort, otherPort, 15020, 15021, 15090} {
		s.Pod.Answer(t, port, func(net.Conn) string { return "app" })
	}
	for _, port := range []int{80, 443, 15020} {
		s.Client.Answer(t, port, func(net.Conn) string { return "world" })
	}
	return s
}

func (s *scene) install(t *testing.T, flags map[string]string) {
	t.Helper()
	c := resolve(t, Input{Flags: flags})
	must.Do(t, s.Pod.Do(func() error { return Install(c) }))
}
