package agent

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"

	"golang.org/x/net/http2/hpack"

	"github.com/lastcall-dev/lastcall/internal/tcp"
	"github.com/lastcall-dev/lastcall/internal/wire/http2"
)

// checkHealth calls grpc.health.v1.Health/Check. Two short messages and one stream are written by hand:
// google.golang.org/grpc would nearly double the program, and every sidecar would pay for it in memory (docs/adr).
func checkHealth(ctx context.Context, address, service string) error {
	if len(service) > 127 {
		return errors.New("check grpc health: the service's name is longer than 127 bytes")
	}
	h := healthCheck{address: address, fields: hpack.NewDecoder(4<<10, nil)}
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
	request         []byte // the message, without gRPC's prefix
	response        []byte // with it
	status, message string // of the trailers

	fields *hpack.Decoder
	block  []byte // received so far
	ended  bool   // the stream ends with this block
}

// maxHealth bounds the response, bytes.
const maxHealth = 1 << 10

func (h *healthCheck) call(ctx context.Context) error {
	conn, err := tcp.DialLoopback(ctx, "tcp", h.address)
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

// request is everything that the client sends, apart from acknowledgements.
func (h *healthCheck) preamble() []byte {
	var block bytes.Buffer
	fields := hpack.NewEncoder(&block)
	for _, field := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", "/grpc.health.v1.Health/Check"}, {":authority", h.address},
		{"content-type", "application/grpc"}, {"te", "trailers"}, {"user-agent", "lastcall"},
	} {
		_ = fields.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
	}
	out := http2.Append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), http2.Settings, 0, 0, nil)
	out = http2.Append(out, http2.Headers, http2.FlagEndHeaders, 1, block.Bytes())
	return http2.Append(out, http2.Data, http2.FlagEndStream, 1, append([]byte{0, 0, 0, 0, byte(len(h.request))}, h.request...))
}

// read reads one frame and reports whether it was the response's last.
func (h *healthCheck) read(conn net.Conn) (done bool, err error) {
	var head [http2.HeaderLen]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return false, err
	}
	length := http2.PayloadLen(head[:])
	if length > maxFrame {
		return false, fmt.Errorf("frame of %d bytes: the app does not serve HTTP/2 without TLS on this port", length)
	}
	payload := make([]byte, length)
	if _, err := io.ReadFull(conn, payload); err != nil {
		return false, err
	}
	kind, flags := head[3], head[4]
	switch {
	case (kind == http2.Settings || kind == http2.Ping) && flags&http2.FlagAck == 0:
		if kind == http2.Settings {
			payload = nil
		}
		_, err = conn.Write(http2.Append(nil, kind, http2.FlagAck, 0, payload))
	case kind == http2.Headers, kind == http2.Continuation:
		return h.takeHeaders(kind, flags, payload)
	case kind == http2.Data:
		if payload, err = http2.Unpad(payload, flags&http2.FlagPadded != 0, 0); err != nil {
			return false, err
		}
		if h.response = append(h.response, payload...); len(h.response) > maxHealth {
			return false, errors.New("the response is too long")
		}
		return flags&http2.FlagEndStream != 0, nil
	case kind == http2.RSTStream && length == 4:
		err = fmt.Errorf("the app reset the stream, error code %d", binary.BigEndian.Uint32(payload))
	case kind == http2.GoAway && length >= 8 && binary.BigEndian.Uint32(payload) < 1:
		err = fmt.Errorf("the app refused the call: GOAWAY, error code %d %s", binary.BigEndian.Uint32(payload[4:]), payload[8:])
	}
	return false, err
}

// takeHeaders collects a header block, and decodes it once it is complete.
func (h *healthCheck) takeHeaders(kind, flags byte, payload []byte) (done bool, err error) {
	if kind == http2.Headers {
		h.ended = flags&http2.FlagEndStream != 0
		skip := 0
		if flags&http2.FlagPriority != 0 {
			skip = 5
		}
		if payload, err = http2.Unpad(payload, flags&http2.FlagPadded != 0, skip); err != nil {
			return false, err
		}
	}
	if h.block = append(h.block, payload...); len(h.block) > maxFrame {
		return false, errors.New("the response's header fields are too long")
	}
	if flags&http2.FlagEndHeaders == 0 {
		return false, nil
	}
	fields, err := h.fields.DecodeFull(h.block)
	h.block = h.block[:0]
	for _, field := range fields {
		switch field.Name {
		case "grpc-status":
			h.status = field.Value
		case "grpc-message":
			h.message = field.Value
		}
	}
	return h.ended, err
}
