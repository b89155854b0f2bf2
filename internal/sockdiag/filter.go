package sockdiag

import (
	"encoding/binary"
	"fmt"

	"github.com/mdlayher/netlink"
)

// Operations of the kernel's filter (enum in linux/inet_diag.h). S_EQ would be
// shorter, but kernels before 5.11 do not know it.
const (
	opJump             = 1
	opLocalPortAtLeast = 2
	opLocalPortAtMost  = 3
)

// perPort is the length of the filter of one port, bytes: two comparisons of two
// words each, and a jump.
const perPort = 20

// maxPorts is what one filter holds: its jumps are 16 bits wide.
const maxPorts = 0xffff/perPort - 1

// byLocalPort is the filter "the local port is one of these" as a netlink
// attribute. An operation is {code u8, yes u8, no u16}: yes and no are how many
// bytes to go on when it holds or not. Arriving at the very end accepts, going
// beyond it refuses (net/ipv4/inet_diag.c, inet_diag_bc_run).
func byLocalPort(ports []uint16) ([]byte, error) {
	if len(ports) > maxPorts {
		return nil, fmt.Errorf("filter the kernel's socket table by %d ports: at most %d can be", len(ports), maxPorts)
	}
	size := perPort * len(ports)
	code := make([]byte, 0, size)
	op := func(operation, yes uint8, no int) {
		code = append(code, operation, yes)
		code = binary.NativeEndian.AppendUint16(code, uint16(no))
	}
	for i, port := range ports {
		refuse := func(next int) int { // to the next port's operations, or beyond the end
			if i == len(ports)-1 {
				return next + 4
			}
			return next
		}
		op(opLocalPortAtLeast, 8, refuse(20))
		op(0, 0, int(port))
		op(opLocalPortAtMost, 8, refuse(12))
		op(0, 0, int(port))
		op(opJump, 4, size-len(code))
	}
	attributes := netlink.NewAttributeEncoder()
	attributes.Bytes(inetDiagReqBytecode, code)
	return attributes.Encode()
}
