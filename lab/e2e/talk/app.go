package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/net/websocket"
	"google.golang.org/grpc"
	pb "google.golang.org/grpc/interop/grpc_testing"
)

// Each port has one protocol, as a Service's ports have in a mesh.
const portHTTP, portHTTP2, portGRPC = "8080", "8082", "9090"

// app serves until ctx ends, and then ends at once: a SIGTERM that comes too early cuts its clients.
func app(ctx context.Context) error {
	mux := http.NewServeMux()
	mux.HandleFunc("/get", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}\n") })
	mux.HandleFunc("/delay/{seconds}", delay)
	mux.Handle("/echo", websocket.Server{Handler: echo})
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	server, server2 := &http.Server{Addr: ":" + portHTTP, Handler: mux}, &http.Server{Addr: ":" + portHTTP2, Handler: mux, Protocols: protocols}

	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", ":"+portGRPC)
	if err != nil {
		return err
	}
	calls := grpc.NewServer()
	pb.RegisterTestServiceServer(calls, streams{})
	ended := make(chan error, 3)
	go func() { ended <- server.ListenAndServe() }()
	go func() { ended <- server2.ListenAndServe() }()
	go func() { ended <- calls.Serve(listener) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		log.Print("SIGTERM: exit")
		return nil
	}
}

// logged writes when a slow conversation began and ended.
func logged(name string) (end func()) {
	began := time.Now()
	log.Printf("begin %s", name)
	return func() { log.Printf("end %s after %.2f s", name, time.Since(began).Seconds()) }
}

func delay(w http.ResponseWriter, r *http.Request) {
	seconds, err := strconv.ParseFloat(r.PathValue("seconds"), 64)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if seconds >= 5 {
		defer logged(r.URL.Path)()
	}
	_, _ = io.Copy(io.Discard, r.Body)
	select {
	case <-time.After(time.Duration(seconds * float64(time.Second))):
		_, _ = fmt.Fprintln(w, "{}")
	case <-r.Context().Done():
	}
}

func echo(c *websocket.Conn) {
	defer logged("/echo")()
	_, _ = io.Copy(c, c)
}

type streams struct {
	pb.UnimplementedTestServiceServer
}

func (streams) StreamingOutputCall(request *pb.StreamingOutputCallRequest, call grpc.ServerStreamingServer[pb.StreamingOutputCallResponse]) error {
	defer logged("StreamingOutputCall")()
	for _, p := range request.GetResponseParameters() {
		time.Sleep(time.Duration(p.GetIntervalUs()) * time.Microsecond)
		if err := call.Send(&pb.StreamingOutputCallResponse{Payload: &pb.Payload{Body: make([]byte, p.GetSize())}}); err != nil {
			return err
		}
	}
	return nil
}
