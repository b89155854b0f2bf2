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
	d := net.Dialer{}
	conn, err := d.DialContext(ctx, "tcp", h.address)
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

// Frames of HTTP/2 and their flags (RFC 9113, 6).
const (
	frameData         = 0x0
	frameHeaders      = 0x1
	frameRSTStream    = 0x3
	frameSettings     = 0x4
	framePing         = 0x6
	frameGoAway       = 0x7
	frameContinuation = 0x9

	flagAck        = 0x1
	flagEndStream  = 0x1
	flagEndHeaders = 0x4
	flagPadded     = 0x8
	flagPriority   = 0x20
)

// maxFrame is the largest frame that may come, bytes: we do not say otherwise
// (SETTINGS_MAX_FRAME_SIZE).
const maxFrame = 16 << 10

func appendFrame(dst []byte, kind, flags byte, stream uint32, payload []byte) []byte {
	n := len(payload)
	dst = append(dst, byte(n>>16), byte(n>>8), byte(n), kind, flags)
	return append(binary.BigEndian.AppendUint32(dst, stream), payload...)
}

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
	out := appendFrame([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), frameSettings, 0, 0, nil)
	out = appendFrame(out, frameHeaders, flagEndHeaders, 1, block.Bytes())
	return appendFrame(out, frameData, flagEndStream, 1, append([]byte{0, 0, 0, 0, byte(len(h.request))}, h.request...))
}

// read takes one frame of the app's. It returns whether it was the answer's last.
func (h *healthCheck) read(conn net.Conn) (done bool, err error) {
	var head [9]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return false, err
	}
	length := int(head[0])<<16 | int(head[1])<<8 | int(head[2])
	if length > maxFrame {
		return false, fmt.Errorf("a frame of %d bytes: the app does not speak HTTP/2 in clear", length)
	}
	payload := make([]byte, length)
	if _, err := io.ReadFull(conn, payload); err != nil {
		return false, err
	}
	kind, flags := head[3], head[4]
	switch {
	case (kind == frameSettings || kind == framePing) && flags&flagAck == 0:
		if kind == frameSettings {
			payload = nil
		}
		_, err = conn.Write(appendFrame(nil, kind, flagAck, 0, payload))
	case kind == frameHeaders, kind == frameContinuation:
		return h.takeHeaders(kind, flags, payload)
	case kind == frameData:
		if payload, err = unpadded(flags, payload); err != nil {
			return false, err
		}
		if h.response = append(h.response, payload...); len(h.response) > maxHealth {
			return false, errors.New("the answer is too long")
		}
		return flags&flagEndStream != 0, nil
	case kind == frameRSTStream && length == 4:
		err = fmt.Errorf("the app has reset the stream, error code %d", binary.BigEndian.Uint32(payload))
	case kind == frameGoAway && length >= 8 && binary.BigEndian.Uint32(payload) < 1:
		err = fmt.Errorf("the app refuses the call: GOAWAY, error code %d %s", binary.BigEndian.Uint32(payload[4:]), payload[8:])
	}
	return false, err
}

// takeHeaders takes a part of a header block, and reads it when it is whole.
func (h *healthCheck) takeHeaders(kind, flags byte, payload []byte) (done bool, err error) {
	if kind == frameHeaders {
		h.ended = flags&flagEndStream != 0
		if payload, err = unpadded(flags, payload); err != nil {
			return false, err
		}
		if flags&flagPriority != 0 {
			payload = payload[min(5, len(payload)):]
		}
	}
	if h.block = append(h.block, payload...); len(h.block) > maxFrame {
		return false, errors.New("the answer's header fields are too long")
	}
	if flags&flagEndHeaders == 0 {
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

// unpadded is a payload without its padding.
func unpadded(flags byte, payload []byte) ([]byte, error) {
	if flags&flagPadded == 0 {
		return payload, nil
	}
	if len(payload) == 0 || int(payload[0]) >= len(payload) {
		return nil, errors.New("padding beyond the end of its frame")
	}
	return payload[1 : len(payload)-int(payload[0])], nil
}
