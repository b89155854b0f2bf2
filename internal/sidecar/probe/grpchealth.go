package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/lastcall-dev/lastcall/internal/wire/grpc"
)

// maxHealth bounds the response, bytes.
const maxHealth = 1 << 10

// checkHealth calls grpc.health.v1.Health/Check by net/http's HTTP/2. The two messages are written by hand:
// google.golang.org/grpc would nearly double the program, and every sidecar would pay for it in memory (docs/adr).
func checkHealth(ctx context.Context, address, service string, dial Dial) error {
	status, message, body, err := callHealth(ctx, address, service, dial)
	switch {
	case err != nil:
		return fmt.Errorf("check grpc health: %w", err)
	case status != "0":
		return fmt.Errorf("check grpc health: grpc-status %s %s", status, message)
	case len(body) < 7 || body[5] != 0x08 || body[6] != 1: // HealthCheckResponse{status = 1: SERVING}
		return errors.New("check grpc health: not SERVING")
	}
	return nil
}

// callHealth makes the call on a connection of its own, and returns the response's trailers and message.
func callHealth(ctx context.Context, address, service string, dial Dial) (status, message string, body []byte,
	err error) {
	if len(service) > 127 {
		return "", "", nil, errors.New("the service's name is longer than 127 bytes")
	}
	var request []byte
	if service != "" { // HealthCheckRequest{string service = 1}
		request = append([]byte{0x0a, byte(len(service))}, service...)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/grpc.health.v1.Health/Check",
		bytes.NewReader(grpc.Append(nil, 0, request)))
	if err != nil {
		return "", "", nil, err
	}
	req.Header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}, "User-Agent": {"lastcall"}}
	transport := &http.Transport{DialContext: dial, Protocols: new(http.Protocols), DisableCompression: true}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return "", "", nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, maxHealth+1))
	switch {
	case err != nil:
		return "", "", nil, err
	case len(body) > maxHealth:
		return "", "", nil, errors.New("the response is too long")
	}
	trailer := resp.Trailer
	if resp.Header.Get("Grpc-Status") != "" { // trailers alone
		trailer = resp.Header
	}
	return trailer.Get("Grpc-Status"), trailer.Get("Grpc-Message"), body, nil
}
