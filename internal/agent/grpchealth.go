package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// checkHealth asks grpc.health.v1.Health/Check. Its two messages are small enough
// to be written by hand, and its one stream to be spoken frame by frame: gRPC's
// library would double the program, and net/http's HTTP/2, which is left out of
// it, takes 0.4 MB of memory.
func checkHealth(ctx context.Context, address, service string) error {
	if len(service) > 127 {
		return errors.New("check grpc health: the service's name is longer than 127 bytes")
	}
	h := healthCheck{address: address}
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
	f := http2.NewFramer(conn, conn)
	f.ReadMetaHeaders = hpack.NewDecoder(4<<10, nil)
	for {
		done, err := h.read(f)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, io.EOF):
			return errors.New("the app has closed the connection without an answer")
		case err != nil || done:
			return err
		}
	}
}

// question is all that the client says of itself.
func (h *healthCheck) question() []byte {
	var head, out bytes.Buffer
	fields := hpack.NewEncoder(&head)
	for _, field := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", "/grpc.health.v1.Health/Check"}, {":authority", h.address},
		{"content-type", "application/grpc"}, {"te", "trailers"}, {"user-agent", "lastcall"},
	} {
		_ = fields.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
	}
	out.WriteString(http2.ClientPreface)
	f := http2.NewFramer(&out, nil)
	_ = f.WriteSettings()
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head.Bytes(), EndHeaders: true})
	_ = f.WriteData(1, true, append([]byte{0, 0, 0, 0, byte(len(h.request))}, h.request...))
	return out.Bytes()
}

// read takes one frame of the app's. It returns whether it was the answer's last.
func (h *healthCheck) read(f *http2.Framer) (done bool, err error) {
	frame, err := f.ReadFrame()
	if err != nil {
		return false, err
	}
	switch frame := frame.(type) {
	case *http2.SettingsFrame:
		if !frame.IsAck() {
			err = f.WriteSettingsAck()
		}
	case *http2.PingFrame:
		if !frame.IsAck() {
			err = f.WritePing(true, frame.Data)
		}
	case *http2.MetaHeadersFrame:
		for _, field := range frame.Fields {
			switch field.Name {
			case "grpc-status":
				h.status = field.Value
			case "grpc-message":
				h.message = field.Value
			}
		}
		done = frame.StreamEnded()
	case *http2.DataFrame:
		if h.response = append(h.response, frame.Data()...); len(h.response) > maxHealth {
			err = errors.New("the answer is too long")
		}
		done = frame.StreamEnded()
	case *http2.RSTStreamFrame:
		err = fmt.Errorf("the app has reset the stream: %v", frame.ErrCode)
	case *http2.GoAwayFrame:
		if frame.LastStreamID < 1 {
			err = fmt.Errorf("the app refuses the call: GOAWAY, %v %s", frame.ErrCode, frame.DebugData())
		}
	}
	return done, err
}
