package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	reflection "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/lastcall-dev/lastcall/rehearsal/traffic"
)

// maxFiles is how many descriptors a server may have for one method.
const maxFiles = 1000

// reflections are the methods of gRPC's server reflection. Their messages are the same.
var reflections = []string{"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"}

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
	var set *descriptorpb.FileDescriptorSet
	var err error
	if l.Descriptors != "" {
		set, err = readDescriptors(l.Descriptors)
	} else {
		set, err = reflect(ctx, client, r, service)
	}
	if err != nil {
		return "", err
	}
	files, err := protodesc.NewFiles(set)
	if err != nil {
		return "", fmt.Errorf("read the descriptors of %s: %w", service, err)
	}
	found, err := files.FindDescriptorByName(protoreflect.FullName(service))
	if err != nil {
		return "", fmt.Errorf("no service %s in the descriptors", service)
	}
	s, ok := found.(protoreflect.ServiceDescriptor)
	if !ok {
		return "", fmt.Errorf("%s is not a service", service)
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

// readDescriptors reads what protoc --include_imports --descriptor_set_out has written.
func readDescriptors(file string) (*descriptorpb.FileDescriptorSet, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read --descriptors: %w", err)
	}
	set := &descriptorpb.FileDescriptorSet{}
	if err := proto.Unmarshal(text, set); err != nil {
		return nil, fmt.Errorf("read --descriptors %s: no set of descriptors, as protoc --include_imports --descriptor_set_out writes it: %w", file, err)
	}
	return set, nil
}

// reflect asks the server for the file of a service and those that it imports.
func reflect(ctx context.Context, client *traffic.Client, r *Request, service string) (set *descriptorpb.FileDescriptorSet, err error) {
	for _, method := range reflections {
		if set, err = reflectBy(ctx, client, r, method, service); status.Code(err) != codes.Unimplemented {
			break
		}
	}
	if status.Code(err) == codes.Unimplemented {
		err = errors.New("the server has no reflection: register it, or use --descriptors")
	}
	return set, err
}

func reflectBy(ctx context.Context, client *traffic.Client, r *Request, method, service string) (*descriptorpb.FileDescriptorSet, error) {
	ctx, stop := context.WithTimeout(ctx, client.Timeout)
	defer stop()
	s, err := client.Stream(ctx, method, r.Header)
	if err != nil {
		return nil, fmt.Errorf("connect for the server's reflection: %w", err)
	}
	set := &descriptorpb.FileDescriptorSet{}
	has := map[string]bool{}
	requested := map[string]bool{}
	next := &reflection.ServerReflectionRequest{MessageRequest: &reflection.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: service}}
	for next != nil {
		if err := s.SendMsg(next); err != nil && !errors.Is(err, io.EOF) { // with io.EOF, RecvMsg has the status
			return nil, fmt.Errorf("ask the server's reflection: %w", err)
		}
		var answer reflection.ServerReflectionResponse
		if err := s.RecvMsg(&answer); err != nil {
			return nil, fmt.Errorf("read the server's reflection: %w", err)
		}
		if e := answer.GetErrorResponse(); e != nil {
			return nil, fmt.Errorf("the server's reflection has no service %s: %s", service, e.GetErrorMessage())
		}
		for _, raw := range answer.GetFileDescriptorResponse().GetFileDescriptorProto() {
			file := &descriptorpb.FileDescriptorProto{}
			if err := proto.Unmarshal(raw, file); err != nil {
				return nil, fmt.Errorf("read the server's reflection: %w", err)
			}
			if !has[file.GetName()] {
				has[file.GetName()] = true
				set.File = append(set.File, file)
			}
		}
		next = nil
		for _, file := range set.File {
			for _, name := range file.GetDependency() {
				if !has[name] && !requested[name] && len(requested) < maxFiles {
					requested[name] = true
					next = &reflection.ServerReflectionRequest{MessageRequest: &reflection.ServerReflectionRequest_FileByFilename{FileByFilename: name}}
				}
			}
		}
	}
	return set, s.CloseSend()
}
