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
	out := http2.Append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), http2.Settings, 0, 0, nil)
	out = http2.Append(out, http2.Headers, http2.FlagEndHeaders, 1, block.Bytes())
	return http2.Append(out, http2.Data, http2.FlagEndStream, 1, append([]byte{0, 0, 0, 0, byte(len(h.request))}, h.request...))
}

// read takes one frame of the app's. It returns whether it was the answer's last.
func (h *healthCheck) read(conn net.Conn) (done bool, err error) {
	var head [http2.HeaderLen]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return false, err
	}
	length := http2.PayloadLen(head[:])
	if length > maxFrame {
		return false, fmt.Errorf("a frame of %d bytes: the app does not speak HTTP/2 in clear", length)
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
			return false, errors.New("the answer is too long")
		}
		return flags&http2.FlagEndStream != 0, nil
	case kind == http2.RSTStream && length == 4:
		err = fmt.Errorf("the app has reset the stream, error code %d", binary.BigEndian.Uint32(payload))
	case kind == http2.GoAway && length >= 8 && binary.BigEndian.Uint32(payload) < 1:
		err = fmt.Errorf("the app refuses the call: GOAWAY, error code %d %s", binary.BigEndian.Uint32(payload[4:]), payload[8:])
	}
	return false, err
}

// takeHeaders takes a part of a header block, and reads it when it is whole.
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
		return false, errors.New("the answer's header fields are too long")
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
