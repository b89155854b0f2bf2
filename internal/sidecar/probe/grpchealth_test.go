package probe

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

// What gRPC servers say, by net/http's HTTP/2, and what others do.
func TestCheckHealth(t *testing.T) {
	serving := []byte{0, 0, 0, 0, 2, 8, 1}
	answer := func(message []byte, status, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/grpc")
			if message != nil {
				_, _ = w.Write(message)
				w.(http.Flusher).Flush()
			}
			w.Header().Set(http.TrailerPrefix+"Grpc-Status", status)
			w.Header().Set(http.TrailerPrefix+"Grpc-Message", text)
		}
	}
	for name, tt := range map[string]struct {
		app  http.HandlerFunc
		want string // of the error; empty for none
	}{
		"serving":     {answer(serving, "0", ""), ""},
		"not serving": {answer([]byte{0, 0, 0, 0, 2, 8, 2}, "0", ""), "not SERVING"},
		"unknown":     {answer([]byte{0, 0, 0, 0, 0}, "0", ""), "not SERVING"},
		"no such service": {func(w http.ResponseWriter, _ *http.Request) { // trailers alone
			w.Header().Set("Content-Type", "application/grpc")
			w.Header().Set("Grpc-Status", "5")
			w.Header().Set("Grpc-Message", "unknown service")
		}, "grpc-status 5 unknown service"},
		"a page":      {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }, "grpc-status "},
		"a long page": {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("x", 4<<10)) }, "too long"},
		"a reset":     {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "reset the stream"},
		"the request": {func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			if r.Method != "POST" || r.URL.Path != "/grpc.health.v1.Health/Check" || r.Header.Get("Te") != "trailers" ||
				r.Header.Get("Content-Type") != "application/grpc" || string(b) != "\x00\x00\x00\x00\x06\x0a\x04shop" {
				t.Errorf("%v %v %v %q", r.Method, r.URL, r.Header, b)
			}
			answer(serving, "0", "")(w, r)
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			app := httptest.NewUnstartedServer(tt.app)
			app.Config.Protocols = new(http.Protocols)
			app.Config.Protocols.SetUnencryptedHTTP2(true)
			app.Start()
			defer app.Close()
			wantHealth(t, app.Listener.Addr().String(), tt.want)
		})
	}
	for name, tt := range map[string]struct {
		app  func(net.Conn)
		want string
	}{
		"closes at once": {func(net.Conn) {}, ""},
		"speaks HTTP/1":  {func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n") }, "frame"},
		"says nothing":   {func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }, "deadline exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			ln := nettest.Listen(t, "127.0.0.1:0")
			defer ln.Close()
			go func() {
				if conn, err := ln.Accept(); err == nil {
					tt.app(conn)
					_ = conn.Close()
				}
			}()
			limit := map[bool]time.Duration{true: 300 * time.Millisecond, false: 10 * time.Second}[tt.want == "deadline exceeded"]
			ctx, cancel := context.WithTimeout(context.Background(), limit)
			defer cancel()
			if err := checkHealth(ctx, ln.Addr().String(), "", DialFromSource); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v; want %q", err, tt.want)
			}
		})
	}
}

func wantHealth(t *testing.T, address, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err := checkHealth(ctx, address, "shop", DialFromSource)
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("%v; want %q", err, want)
	}
}

// An app that uses all that HTTP/2 allows between the question and the answer.
func TestCheckHealthFrames(t *testing.T) {
	ln := nettest.Listen(t, "127.0.0.1:0")
	defer ln.Close()
	acks := make(chan string, 1)
	go func() {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		var block bytes.Buffer
		e := hpack.NewEncoder(&block)
		fields := func(fields ...string) []byte {
			block.Reset()
			for i := 0; i < len(fields); i += 2 {
				_ = e.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
			}
			return bytes.Clone(block.Bytes())
		}
		f := http2.NewFramer(conn, conn)
		_ = f.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 1})
		_ = f.WritePing(false, [8]byte{1, 2, 3})
		_ = f.WriteWindowUpdate(0, 1000)
		_ = f.WriteGoAway(1, http2.ErrCodeNo, nil) // this call is still served
		head := fields(":status", "200", "content-type", "application/grpc")
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head[:1], PadLength: 3, Priority: http2.PriorityParam{StreamDep: 3, Weight: 1}})
		_ = f.WriteContinuation(1, true, head[1:])
		_ = f.WriteDataPadded(1, false, []byte{0, 0, 0, 0, 2}, make([]byte, 7))
		_ = f.WriteData(1, false, []byte{8, 1})
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: fields("grpc-status", "0"), EndStream: true, EndHeaders: true})
		_, _ = io.ReadFull(conn, make([]byte, len(http2.ClientPreface)))
		frames := ""
		for frame, err := f.ReadFrame(); err == nil; frame, err = f.ReadFrame() {
			frames += frame.Header().Type.String()
			if frame.Header().Flags&http2.FlagSettingsAck != 0 && frame.Header().Type != http2.FrameData {
				frames += " ack"
			}
			frames += " "
		}
		acks <- frames
	}()
	wantHealth(t, ln.Addr().String(), "")
	if frames := <-acks; frames != "SETTINGS HEADERS DATA SETTINGS ack PING ack " {
		t.Errorf("the client sent %q", frames)
	}
}
