package capture

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/nftables"
	"go.uber.org/goleak"

	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
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
		{"everything", nil, []row{
			{"inbound", s.Client, none, "pod", appPort, "inbound {}"},
			{"inbound to a port without a listener", s.Client, none, "pod", 9999, "inbound {}"},
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
		{"a virtual machine behind the interface", map[string]string{"virtual-interfaces": nettest.Interface, "exclude-outbound-ports": "8081"}, []row{
			{"is outbound", s.Client, none, "pod", appPort, "outbound {}"},
			{"unless excluded", s.Client, none, "pod", otherPort, "app"},
		}},
		{"another proxy", map[string]string{"inbound-port": "15001", "outbound-port": "15006", "proxy-uid": "2000,2001", "proxy-gid": "3000"}, []row{
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
		must(t, err)
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
	must(t, s.Pod.Do(Remove))
	if got := strings.Join(tables(), " "); got != "other" {
		t.Errorf("tables after it is undone: %s", got)
	}
	if got := s.Client.Receive(t, netip.Addr{}, s.Pod.TCP6(appPort)); got != "app" {
		t.Errorf("the client got %q, want the app", got)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
