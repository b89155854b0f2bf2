package capture

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	sidecartcp "github.com/lastcall-dev/lastcall/internal/sidecar/tcp"
)

// sources are the addresses from which the app sees captured connections.
var sources = map[family]netip.Prefix{ipv4: sidecartcp.Sources4, ipv6: sidecartcp.Sources6}

// route is the line of `ip route` for them: local, and so usable without any right, but of no interface.
func (f family) route() string {
	return fmt.Sprintf("ip -%d route add local %v dev lo", map[family]int{ipv4: 4, ipv6: 6}[f], sources[f])
}

// routeSources makes the sources local in the network namespace of the calling thread, or undoes it. Where an interface
// has no addresses of a family, or loopback is down, it has no captured connections either; a missing right is reported
// with the rules.
func (f family) routeSources(add bool) error {
	flags := netlink.Request | netlink.Acknowledge
	message := netlink.Message{Header: netlink.Header{Type: unix.RTM_DELROUTE, Flags: flags}}
	if add {
		message.Header.Type = unix.RTM_NEWROUTE
		message.Header.Flags |= netlink.Create | netlink.Excl
	}
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		return fmt.Errorf("find the loopback interface: %w", err)
	}
	rtmsg := []byte{unix.AF_INET, byte(sources[f].Bits()), 0, 0, unix.RT_TABLE_LOCAL, unix.RTPROT_STATIC,
		unix.RT_SCOPE_HOST, unix.RTN_LOCAL, 0, 0, 0, 0}
	if f == ipv6 {
		rtmsg[0] = unix.AF_INET6
	}
	attributes := netlink.NewAttributeEncoder()
	attributes.Bytes(unix.RTA_DST, sources[f].Addr().AsSlice())
	attributes.Uint32(unix.RTA_OIF, uint32(lo.Index))
	encoded, err := attributes.Encode()
	if err != nil {
		return err
	}
	message.Data = append(rtmsg, encoded...)
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_, err = conn.Execute(message)
	for _, harmless := range []error{unix.EEXIST, unix.ESRCH, unix.ENODEV, os.ErrPermission, unix.ENETDOWN} {
		if errors.Is(err, harmless) {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", f.route(), err)
	}
	return nil
}
