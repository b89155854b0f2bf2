package capture

import (
	"bytes"
	"net"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
	sidecartcp "github.com/lastcall-dev/lastcall/internal/sidecar/tcp"
)

// The printed rules, given to the real nft, equal those of Install, rule for rule; and it reads the same.
func TestDryRunIsWhatIsInstalled(t *testing.T) {
	nft := peers.Need(t, "nft")
	run := func(t *testing.T, in *nettest.Namespace, stdin string, args ...string) string {
		t.Helper()
		var out, complaint bytes.Buffer
		cmd := exec.Command(nft, args...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &complaint
		must(t, in.Start(cmd))
		if err := cmd.Wait(); err != nil {
			t.Fatalf("nft %v: %v\n%s\n%s", args, err, &complaint, stdin)
		}
		return out.String()
	}
	n := nettest.New(t)
	for name, flags := range map[string]map[string]string{
		"defaults": nil,
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
			must(t, n.Pod.Do(func() error { return DryRun(&printed, c) }))
			for range 2 { // the second replaces the first
				run(t, n.Client, printed.String(), "-f", "-")
			}
			must(t, n.Pod.Do(func() error { return Install(c) }))
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
		case strings.HasPrefix(line, "delete "), strings.HasPrefix(line, "table ") && !strings.HasSuffix(line, "{\n"):
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
	must(t, s.Pod.Do(func() error { return Install(c) }))
}
