package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/lastcall-dev/lastcall/internal/wire/grpc"
	"github.com/lastcall-dev/lastcall/internal/wire/http2"
)

// checkHealth calls grpc.health.v1.Health/Check. Two short messages and one stream are written by hand:
// google.golang.org/grpc would nearly double the program, and every sidecar would pay for it in memory (docs/adr).
func checkHealth(ctx context.Context, address, service string, dial Dial) error {
	if len(service) > 127 {
		return errors.New("check grpc health: the service's name is longer than 127 bytes")
	}
	h := healthCheck{address: address, dial: dial, fields: http2.NewDecoder(healthFields)}
	if service != "" { // HealthCheckRequest{string service = 1}
		h.request = append([]byte{0x0a, byte(len(service))}, service...)
	}
	err := h.call(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("check grpc health: %w", err)
	case h.status != "0":
		return fmt.Errorf("check grpc health: grpc-status %s %s", h.status, h.message)
	case len(h.response) < 7 || h.response[5] != 0x08 || h.response[6] != 1: // HealthCheckResponse{status = 1: SERVING}
		return errors.New("check grpc health: not SERVING")
	}
	return nil
}

// healthCheck is one call, on a connection of its own.
type healthCheck struct {
	address         string
	dial            Dial
	request         []byte // the message, without gRPC's prefix
	response        []byte // with it
	status, message string // of the trailers

	fields http2.Decoder
	block  []byte // received so far
	ended  bool   // the stream ends with this block
}

// healthFields are the fields of the trailers that have the call's result.
var healthFields = http2.FieldsOf(http2.FieldGRPCStatus, http2.FieldGRPCMessage)

// Field is called for each of healthFields.
func (h *healthCheck) Field(name http2.FieldName, value []byte) {
	if name == http2.FieldGRPCStatus {
		h.status = string(value)
	} else {
		h.message = string(value)
	}
}

// maxHealth bounds the response, bytes.
const maxHealth = 1 << 10

func (h *healthCheck) call(ctx context.Context) error {
	conn, err := h.dial(ctx, "tcp", h.address)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	// The request fits into the socket's buffer, so neither side blocks on the other.
	if _, err := conn.Write(h.preamble()); err != nil {
		return err
	}
	for done := false; !done; {
		done, err = h.read(conn)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, io.EOF):
			return errors.New("the app closed the connection without a response")
		case err != nil:
			return err
		}
	}
	return nil
}

// maxFrame is the largest frame that the app may send, bytes: the default of SETTINGS_MAX_FRAME_SIZE.
const maxFrame = 16 << 10

// preamble is everything that the client sends, apart from acknowledgements.
func (h *healthCheck) preamble() []byte {
	var block []byte
	for _, field := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", "/grpc.health.v1.Health/Check"}, {":authority", h.address},
		{"content-type", "application/grpc"}, {"te", "trailers"}, {"user-agent", "lastcall"},
	} {
		block = http2.AppendField(block, field[0], field[1])
	}
	out := http2.Append([]byte(http2.Preface), http2.Settings, 0, 0, nil)
	out = http2.Append(out, http2.Headers, http2.FlagEndHeaders, 1, block)
	return http2.Append(out, http2.Data, http2.FlagEndStream, 1, grpc.Append(nil, 0, h.request))
}

// read reads one frame and reports whether it was the response's last.
func (h *healthCheck) read(conn net.Conn) (done bool, err error) {
	var head [http2.HeaderLen]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return false, err
	}
	at := http2.ReadHeader(head[:])
	if at.Length > maxFrame {
		return false, fmt.Errorf("frame of %d bytes: the app does not serve HTTP/2 without TLS on this port", at.Length)
	}
	payload := make([]byte, at.Length)
	if _, err := io.ReadFull(conn, payload); err != nil {
		return false, err
	}
	switch {
	case (at.Type == http2.Settings || at.Type == http2.Ping) && !at.Has(http2.FlagAck):
		if at.Type == http2.Settings {
			payload = nil
		}
		_, err = conn.Write(http2.Append(nil, at.Type, http2.FlagAck, 0, payload))
	case at.Type == http2.Headers, at.Type == http2.Continuation:
		return h.takeHeaders(at, payload)
	case at.Type == http2.Data:
		if payload, err = http2.Unpad(payload, at.Has(http2.FlagPadded), 0); err != nil {
			return false, err
		}
		if h.response = append(h.response, payload...); len(h.response) > maxHealth {
			return false, errors.New("the response is too long")
		}
		return at.Has(http2.FlagEndStream), nil
	case at.Type == http2.RSTStream && at.Length == 4:
		err = fmt.Errorf("the app reset the stream, error code %d", binary.BigEndian.Uint32(payload))
	case at.Type == http2.GoAway && at.Length >= 8 && binary.BigEndian.Uint32(payload) < 1:
		err = fmt.Errorf("the app refused the call: GOAWAY, error code %d %s",
			binary.BigEndian.Uint32(payload[4:]), payload[8:])
	}
	return false, err
}

// takeHeaders collects a header block, and decodes it once it is complete.
func (h *healthCheck) takeHeaders(at http2.FrameHeader, payload []byte) (done bool, err error) {
	if at.Type == http2.Headers {
		h.ended = at.Has(http2.FlagEndStream)
		if payload, err = at.Fragment(payload); err != nil {
			return false, err
		}
	}
	if h.block = append(h.block, payload...); len(h.block) > maxFrame {
		return false, errors.New("the response's header fields are too long")
	}
	if !at.Has(http2.FlagEndHeaders) {
		return false, nil
	}
	err = h.fields.Decode(h.block, http2.DefaultTableSize, h)
	h.block = h.block[:0]
	return h.ended, err
}
