package load

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/jhump/protoreflect/grpcreflect"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/lastcall-dev/lastcall/rehearsal/traffic"
)

// encode replaces the JSON bodies of gRPC requests by encoded messages.
func (l *Load) encode(ctx context.Context, client *traffic.Client) error {
	l.Requests = slices.Clone(l.Requests)
	for i := range l.Requests {
		r := &l.Requests[i]
		if r.Protocol != traffic.GRPC {
			continue
		}
		body, err := l.message(ctx, client, r)
		if err != nil {
			return fmt.Errorf("%s: %w", r, err)
		}
		r.Body = body
	}
	return nil
}

// message is the encoded message of a request.
func (l *Load) message(ctx context.Context, client *traffic.Client, r *Request) (string, error) {
	service, name, _ := strings.Cut(strings.TrimPrefix(r.Path, "/"), "/")
	s, err := l.service(ctx, client, r, service)
	if err != nil {
		return "", err
	}
	method := s.Methods().ByName(protoreflect.Name(name))
	if method == nil {
		var all []string
		for i := range s.Methods().Len() {
			all = append(all, string(s.Methods().Get(i).Name()))
		}
		return "", fmt.Errorf("service %s has no method %s: must be one of %s", service, name, strings.Join(all, ", "))
	}
	if method.IsStreamingClient() {
		return "", fmt.Errorf("%s is a client stream: must be a unary or server streaming method", name)
	}
	message := dynamicpb.NewMessage(method.Input())
	if r.Body != "" {
		if err := protojson.Unmarshal([]byte(r.Body), message); err != nil {
			return "", fmt.Errorf("encode the body as %s: %w", method.Input().FullName(), err)
		}
	}
	b, err := proto.Marshal(message)
	return string(b), err
}

// service is the descriptor of a service: from the file, or by the server's reflection.
func (l *Load) service(ctx context.Context, client *traffic.Client, r *Request,
	name string) (protoreflect.ServiceDescriptor, error) {
	if l.Descriptors != "" {
		return readService(l.Descriptors, name)
	}
	ctx, stop := context.WithTimeout(ctx, client.Timeout)
	defer stop()
	server := grpcreflect.NewClientAuto(ctx, streams{client: client, header: r.Header})
	defer server.Reset()
	found, err := server.ResolveService(name)
	switch {
	case status.Code(err) == codes.Unimplemented:
		return nil, errors.New("the server has no reflection: register it, or use --descriptors")
	case err != nil:
		return nil, fmt.Errorf("the server's reflection has no service %s: %w", name, err)
	}
	return found.UnwrapService(), nil
}

// streams sends the header of the load's requests to the server's reflection, too.
type streams struct {
	grpc.ClientConnInterface // nil: reflection has no unary methods
	client                   *traffic.Client
	header                   http.Header
}

func (s streams) NewStream(ctx context.Context, _ *grpc.StreamDesc, method string,
	options ...grpc.CallOption) (grpc.ClientStream, error) {
	return s.client.Stream(ctx, method, s.header, options...)
}

// readService finds a service in the output of protoc --include_imports --descriptor_set_out.
func readService(file, name string) (protoreflect.ServiceDescriptor, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read --descriptors: %w", err)
	}
	set := &descriptorpb.FileDescriptorSet{}
	if err := proto.Unmarshal(text, set); err != nil {
		return nil, fmt.Errorf("read --descriptors %s: no set of descriptors, "+
			"as protoc --include_imports --descriptor_set_out writes it: %w", file, err)
	}
	files, err := protodesc.NewFiles(set)
	if err != nil {
		return nil, fmt.Errorf("read --descriptors %s: %w", file, err)
	}
	found, _ := files.FindDescriptorByName(protoreflect.FullName(name))
	if s, ok := found.(protoreflect.ServiceDescriptor); ok {
		return s, nil
	}
	return nil, fmt.Errorf("--descriptors %s has no service %s", file, name)
}
