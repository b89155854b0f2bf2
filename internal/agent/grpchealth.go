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

	"github.com/lastcall-dev/lastcall/internal/pipe/h2frame"
	"github.com/lastcall-dev/lastcall/internal/tcp"
)

// checkHealth asks grpc.health.v1.Health/Check. Its two messages are small enough
// to be written by hand, and its one stream to be spoken frame by frame: gRPC's
// library would double the program, and net/http's HTTP/2, which is left out of
// it, takes 0.4 MB of memory, x/net's Framer 0.1.
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
	block  []byte // as far as it has come
	ended  bool   // the stream ends with it
}

// maxHealth is how much of an answer is read, bytes.
const maxHealth = 1 << 10

func (h *healthCheck) call(ctx context.Context) error {
	conn, err := tcp.DialLoopback(ctx, "tcp", h.address)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	// What the client says fits into the socket's buffer: nobody waits for nobody.
	if _, err := conn.Write(h.question()); err != nil {
		return err
	}
	for done := false; !done; {
		done, err = h.read(conn)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, io.EOF):
			return errors.New("the app has closed the connection without an answer")
		case err != nil:
			return err
		}
	}
	return nil
}

// maxFrame is the largest frame that may come, bytes: we do not say otherwise
// (SETTINGS_MAX_FRAME_SIZE).
const maxFrame = 16 << 10

// question is all that the client says of itself.
func (h *healthCheck) question() []byte {
	var block bytes.Buffer
	fields := hpack.NewEncoder(&block)
	for _, field := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", "/grpc.health.v1.Health/Check"}, {":authority", h.address},
		{"content-type", "application/grpc"}, {"te", "trailers"}, {"user-agent", "lastcall"},
	} {
		_ = fields.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
	}
	out := h2frame.Append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), h2frame.Settings, 0, 0, nil)
	out = h2frame.Append(out, h2frame.Headers, h2frame.FlagEndHeaders, 1, block.Bytes())
	return h2frame.Append(out, h2frame.Data, h2frame.FlagEndStream, 1, append([]byte{0, 0, 0, 0, byte(len(h.request))}, h.request...))
}

// read takes one frame of the app's. It returns whether it was the answer's last.
func (h *healthCheck) read(conn net.Conn) (done bool, err error) {
	var head [h2frame.HeaderLen]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return false, err
	}
	length := h2frame.PayloadLen(head[:])
	if length > maxFrame {
		return false, fmt.Errorf("a frame of %d bytes: the app does not speak HTTP/2 in clear", length)
	}
	payload := make([]byte, length)
	if _, err := io.ReadFull(conn, payload); err != nil {
		return false, err
	}
	kind, flags := head[3], head[4]
	switch {
	case (kind == h2frame.Settings || kind == h2frame.Ping) && flags&h2frame.FlagAck == 0:
		if kind == h2frame.Settings {
			payload = nil
		}
		_, err = conn.Write(h2frame.Append(nil, kind, h2frame.FlagAck, 0, payload))
	case kind == h2frame.Headers, kind == h2frame.Continuation:
		return h.takeHeaders(kind, flags, payload)
	case kind == h2frame.Data:
		if payload, err = h2frame.Unpad(payload, flags&h2frame.FlagPadded != 0, 0); err != nil {
			return false, err
		}
		if h.response = append(h.response, payload...); len(h.response) > maxHealth {
			return false, errors.New("the answer is too long")
		}
		return flags&h2frame.FlagEndStream != 0, nil
	case kind == h2frame.RSTStream && length == 4:
		err = fmt.Errorf("the app has reset the stream, error code %d", binary.BigEndian.Uint32(payload))
	case kind == h2frame.GoAway && length >= 8 && binary.BigEndian.Uint32(payload) < 1:
		err = fmt.Errorf("the app refuses the call: GOAWAY, error code %d %s", binary.BigEndian.Uint32(payload[4:]), payload[8:])
	}
	return false, err
}

// takeHeaders takes a part of a header block, and reads it when it is whole.
func (h *healthCheck) takeHeaders(kind, flags byte, payload []byte) (done bool, err error) {
	if kind == h2frame.Headers {
		h.ended = flags&h2frame.FlagEndStream != 0
		skip := 0
		if flags&h2frame.FlagPriority != 0 {
			skip = 5
		}
		if payload, err = h2frame.Unpad(payload, flags&h2frame.FlagPadded != 0, skip); err != nil {
			return false, err
		}
	}
	if h.block = append(h.block, payload...); len(h.block) > maxFrame {
		return false, errors.New("the answer's header fields are too long")
	}
	if flags&h2frame.FlagEndHeaders == 0 {
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
