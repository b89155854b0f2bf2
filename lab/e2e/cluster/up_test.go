package main

import (
	"bytes"
	"fmt"
	"net"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

// The bridge keeps its MAC address when a pod with a lower one joins it.
func TestBridgeKeepsItsAddress(t *testing.T) {
	must.Do(t, nettest.Alone(t).Do(func() error {
		link, err := makeBridge()
		if err != nil {
			return err
		}
		pod := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "pod", MasterIndex: link.Attrs().Index,
			HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 1}}, PeerName: "peer"}
		if err := netlink.LinkAdd(pod); err != nil {
			return err
		}
		after, err := netlink.LinkByName(bridge)
		if err != nil {
			return err
		}
		if before := link.Attrs().HardwareAddr; !bytes.Equal(before, after.Attrs().HardwareAddr) {
			return fmt.Errorf("the MAC address changed from %v to %v", before, after.Attrs().HardwareAddr)
		}
		return nil
	}))
}
