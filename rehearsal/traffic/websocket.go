package traffic

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/lastcall-dev/lastcall/internal/wire/ws"
)

// Parts of a frame's header (RFC 6455, 5.2).
const (
	opText     = 0x81 // with FIN
	opClose    = 0x8
	maskBit    = 0x80
	length16   = 126
	length64   = 127
	closeClean = 1000 // normal closure (7.4.1)
)

// holdWebSocket sends a message, if there is one, and reads frames until the connection ends.
func (k *kept) holdWebSocket(ctx context.Context, message string, o *Outcome) {
	if message != "" {
		if _, err := k.Write(textFrame(message)); err != nil {
			o.fail(ctx, err, Ended)
			return
		}
	}
	for {
		op, code, err := k.readFrame(o)
		switch {
		case err != nil:
			o.fail(ctx, err, NoClose)
			return
		case op != opClose:
			continue
		case code != closeClean && code != ws.CloseGoingAway && code != ws.CloseServiceRestart:
			o.Failure, o.Detail = NoClose, fmt.Sprintf("close frame with code %d", code)
		}
		_, _ = k.Write(ws.AppendClose(nil, code, "", true))
		return
	}
}

// readFrame reads one frame; of a close frame it returns the code, 1005 if there is none (RFC 6455, 7.4.1).
func (k *kept) readFrame(o *Outcome) (op byte, code int, err error) {
	var head [2]byte
	if _, err := io.ReadFull(k.r, head[:]); err != nil {
		return 0, 0, err
	}
	op = head[0] & 0x0f
	size := uint64(head[1] &^ maskBit)
	var more [8]byte
	switch size {
	case length16:
		_, err = io.ReadFull(k.r, more[:2])
		size = uint64(binary.BigEndian.Uint16(more[:2]))
	case length64:
		_, err = io.ReadFull(k.r, more[:])
		size = binary.BigEndian.Uint64(more[:])
	}
	if err != nil {
		return 0, 0, err
	}
	if op == opClose {
		payload := make([]byte, min(size, 125)) // the limit of control frames (RFC 6455, 5.5)
		if _, err := io.ReadFull(k.r, payload); err != nil {
			return 0, 0, err
		}
		if len(payload) < 2 {
			return op, closeClean, nil
		}
		return op, int(binary.BigEndian.Uint16(payload)), nil
	}
	_, err = io.CopyN(o, k.r, int64(min(size, 1<<40)))
	return op, 0, err
}

// textFrame is a masked text message of one frame; a mask of zeros leaves the payload unchanged.
func textFrame(message string) []byte {
	out := []byte{opText}
	switch n := len(message); {
	case n < length16:
		out = append(out, maskBit|byte(n))
	default:
		out = binary.BigEndian.AppendUint64(append(out, maskBit|length64), uint64(n))
	}
	return append(append(out, 0, 0, 0, 0), message...)
}
