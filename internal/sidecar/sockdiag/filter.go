package sockdiag

import (
	"encoding/binary"
	"slices"

	"golang.org/x/sys/unix"
)

// Operations of the kernel's filter (enum in linux/inet_diag.h).
const (
	opJump             = 1
	opLocalPortAtLeast = 2
	opLocalPortAtMost  = 3
)

// perSpan is the length of the filter of one span of ports, bytes: two comparisons of two words each, and a jump.
const perSpan = 20

// maxSpans bounds the filter, which the kernel runs for every socket. If there are more ports, spans include other
// ports; those are removed afterwards, which is cheaper than 2,000 comparisons per socket.
const maxSpans = 64

// span is the ports from first to last.
type span struct{ first, last uint16 }

// spansOf covers ports, which are sorted, with at most most spans that include as few other ports as possible.
func spansOf(ports []uint16, most int) (spans []span) {
	var gaps []int // between neighbours that are not adjacent
	for i := 1; i < len(ports); i++ {
		if gap := int(ports[i]) - int(ports[i-1]); gap > 1 {
			gaps = append(gaps, gap)
		}
	}
	bridged := 1 // gaps up to this are part of a span
	if over := len(gaps) + 1 - most; over > 0 {
		slices.Sort(gaps)
		bridged = gaps[over-1]
	}
	for _, port := range ports {
		if n := len(spans); n > 0 && int(port)-int(spans[n-1].last) <= bridged {
			spans[n-1].last = port
			continue
		}
		spans = append(spans, span{port, port})
	}
	return spans
}

// byLocalPort is the filter "the local port is in one of these" as a netlink attribute. An operation is {code u8, yes
// u8, no u16}: yes and no are the number of bytes to skip when it is true or false. Reaching the very end accepts,
// going beyond it rejects (net/ipv4/inet_diag.c, inet_diag_bc_run).
func byLocalPort(spans []span) []byte {
	size := perSpan * len(spans)
	code := make([]byte, 0, size)
	op := func(operation, yes uint8, no int) {
		code = append(code, operation, yes)
		code = binary.NativeEndian.AppendUint16(code, uint16(no))
	}
	for i, s := range spans {
		refuse := func(next int) int { // to the next span's operations, or beyond the end
			if i == len(spans)-1 {
				return next + 4
			}
			return next
		}
		op(opLocalPortAtLeast, 8, refuse(20))
		op(0, 0, int(s.first))
		op(opLocalPortAtMost, 8, refuse(12))
		op(0, 0, int(s.last))
		op(opJump, 4, size-len(code))
	}
	attribute := binary.NativeEndian.AppendUint16(nil, uint16(unix.SizeofNlAttr+size))
	attribute = binary.NativeEndian.AppendUint16(attribute, inetDiagReqBytecode)
	return append(attribute, code...)
}
