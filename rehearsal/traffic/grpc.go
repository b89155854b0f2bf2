package traffic

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// channel is the client's gRPC channel, which is made at its first use. It reconnects as grpc-go's clients do: at once
// after a GOAWAY, and after a refused connection with a growing delay, in which calls fail with UNAVAILABLE.
func (c *Client) channel() *grpc.ClientConn {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.grpc != nil {
		return c.grpc
	}
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		addresses := c.Targets()
		if len(addresses) == 0 {
			return nil, errors.New("no pods")
		}
		ctx, stop := context.WithTimeout(ctx, dialTimeout)
		defer stop()
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", addresses[0])
		if err == nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.opened++
			c.numbers[conn.LocalAddr().String()] = c.opened
		}
		return conn, err
	}
	c.numbers = map[string]int64{}
	c.grpc, _ = grpc.NewClient("passthrough:///rehearse", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(dial), grpc.WithUserAgent("rehearse"), grpc.WithDisableRetry())
	return c.grpc // without an error: the target and the options are valid
}

// Stream opens a gRPC stream on the client's channel. The host of requests is a header Host, if there is one.
func (c *Client) Stream(ctx context.Context, method string, header http.Header,
	options ...grpc.CallOption) (grpc.ClientStream, error) {
	for name, values := range header {
		for _, v := range values {
			if name == "Host" {
				options = append(options, grpc.CallAuthority(v))
			} else {
				ctx = metadata.AppendToOutgoingContext(ctx, strings.ToLower(name), v)
			}
		}
	}
	return c.channel().NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method, options...)
}

// call makes one call of a unary or server streaming method.
func (c *Client) call(ctx context.Context, r Request, o *Outcome) {
	limited, stop := context.WithTimeout(ctx, cmp.Or(c.Timeout, DefaultTimeout))
	defer stop()
	var at peer.Peer
	err := func() error {
		s, err := c.Stream(limited, r.Path, r.Header, grpc.Peer(&at))
		if err != nil {
			return err
		}
		request := &emptypb.Empty{} // an encoded message is its unknown fields
		request.ProtoReflect().SetUnknown([]byte(r.Body))
		if err := s.SendMsg(request); err != nil && !errors.Is(err, io.EOF) { // RecvMsg has the status
			return err
		}
		_ = s.CloseSend() // RecvMsg has the status
		for {
			response := &emptypb.Empty{}
			switch err := s.RecvMsg(response); {
			case errors.Is(err, io.EOF):
				return nil
			case err != nil:
				return err
			}
			if o.First.IsZero() {
				o.First, o.Status = time.Now(), http.StatusOK
			}
			_, _ = o.Write(response.ProtoReflect().GetUnknown())
		}
	}()
	if at.Addr != nil {
		o.Address = at.Addr.String()
	}
	if at.LocalAddr != nil {
		c.mu.Lock()
		o.Conn = c.numbers[at.LocalAddr.String()]
		c.mu.Unlock()
	}
	if err == nil {
		return
	}
	o.Detail = err.Error()
	switch name := code.Code(status.Code(err)); {
	case ctx.Err() != nil:
		o.Failure = Stopped
	case limited.Err() != nil && name == code.Code_DEADLINE_EXCEEDED:
		o.Failure = Late
	default:
		o.Failure = Failure(name.String())
	}
}
