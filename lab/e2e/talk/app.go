package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/websocket"
	"google.golang.org/grpc"
	pb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/lastcall-dev/lastcall/rehearsal/httpbin"
)

// Each port has one protocol, as a Service's ports have in a mesh.
const portHTTP, portHTTP2, portHTTPS, portGRPC, portLines = "8080", "8082", "8443", "9090", "7000"

// closedFor is how long the app serves the connections that it has after it has closed its listeners.
const closedFor = 4 * time.Second

// app serves until ctx ends. Then it ends as onTerm says: exit at once, so that a SIGTERM that comes too early cuts its
// clients; shutdown when it has answered; close, which closes the listeners, some seconds later; drain by lastcall's
// library.
func app(ctx context.Context, onTerm string, withTLS bool) error {
	mux := http.NewServeMux()
	mux.HandleFunc("/get", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}\n") })
	mux.HandleFunc("/delay/{seconds}", delay)
	mux.Handle("/drip", httpbin.NewHandler(time.Minute))
	mux.Handle("/echo", websocket.Server{Handler: echo})
	mux.HandleFunc("/fail/{how}", fail)
	mux.HandleFunc("/live", live)
	if onTerm == "drain" {
		return drained(ctx, mux)
	}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	overTLS := httptest.NewUnstartedServer(mux)
	overTLS.EnableHTTP2 = true
	server, server2 := &http.Server{Handler: mux}, &http.Server{Handler: mux, Protocols: protocols}
	calls := newGRPC()
	var lines lines
	ports := map[string]func(net.Listener) error{
		portHTTP: server.Serve, portHTTP2: server2.Serve, portGRPC: calls.Serve, portLines: lines.serve,
	}
	portTLS := portHTTPS
	if withTLS {
		portTLS = portHTTP
	}
	ports[portTLS] = func(ln net.Listener) error {
		_ = overTLS.Listener.Close()
		overTLS.Listener = ln
		overTLS.StartTLS()
		return nil
	}

	ended := make(chan error, 5)
	var listeners []net.Listener
	for port, serve := range ports {
		ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", ":"+port)
		if err != nil {
			return err
		}
		listeners = append(listeners, ln)
		go func() {
			if err := serve(ln); err != nil {
				ended <- err
			}
		}()
	}
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		log.Print("SIGTERM: " + onTerm)
	}
	switch onTerm {
	case "shutdown":
		var all sync.WaitGroup
		for _, s := range []*http.Server{server, server2, overTLS.Config} {
			all.Go(func() { _ = s.Shutdown(context.WithoutCancel(ctx)) })
		}
		all.Go(calls.GracefulStop)
		all.Go(lines.answered.Wait)
		all.Wait()
	case "close":
		for _, ln := range listeners {
			_ = ln.Close()
		}
		time.Sleep(closedFor)
	}
	return nil
}

// isSick makes the liveness probe fail.
var isSick atomic.Bool

func live(w http.ResponseWriter, _ *http.Request) {
	if isSick.Load() {
		w.WriteHeader(http.StatusInternalServerError)
	}
}

// fail makes the app fail by itself: exit, sick (its liveness probe) or memory (more than it may have).
func fail(w http.ResponseWriter, r *http.Request) {
	switch r.PathValue("how") {
	case "exit":
		os.Exit(1)
	case "sick":
		isSick.Store(true)
	case "memory":
		go func() {
			for all := [][]byte{}; ; {
				all = append(all, bytes.Repeat([]byte{1}, 16<<20))
			}
		}()
	}
}

// lines answers each line after the seconds that it states.
type lines struct{ answered sync.WaitGroup }

func (l *lines) serve(ln net.Listener) error {
	for {
		c, err := ln.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer func() { _ = c.Close() }()
			for in := bufio.NewScanner(c); in.Scan(); {
				l.answered.Add(1)
				seconds, _ := strconv.ParseFloat(in.Text(), 64)
				time.Sleep(time.Duration(seconds * float64(time.Second)))
				_, err := io.WriteString(c, "{}\n")
				if l.answered.Done(); err != nil {
					return
				}
			}
		}()
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
	_ = c.Close() // with a close frame
}

type testService struct {
	pb.UnimplementedTestServiceServer
}

func (testService) StreamingOutputCall(request *pb.StreamingOutputCallRequest,
	call grpc.ServerStreamingServer[pb.StreamingOutputCallResponse]) error {
	defer logged("StreamingOutputCall")()
	for _, p := range request.GetResponseParameters() {
		time.Sleep(time.Duration(p.GetIntervalUs()) * time.Microsecond)
		payload := &pb.Payload{Body: make([]byte, p.GetSize())}
		if err := call.Send(&pb.StreamingOutputCallResponse{Payload: payload}); err != nil {
			return err
		}
	}
	return nil
}
