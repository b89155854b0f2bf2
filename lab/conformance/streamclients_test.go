package conformance

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
)

// streamWords is the length of a stream: three seconds, so that it ends by itself before the last call.
const streamWords = 150

func streamPython(t *testing.T, args ...string) *exec.Cmd {
	command := python(t, args...)
	if args[0] == "grpc" {
		command = sdkPython(t, args...)
	}
	command.Args[1] = "testdata/stream.py"
	return command
}

func streamNode(t *testing.T, args ...string) *exec.Cmd {
	command := node(t, args...)
	command.Args[1] = "testdata/node/stream.js"
	return command
}

// streamGo is this program as a client, also for curl, whose output it reads.
func streamGo(t *testing.T, args ...string) *exec.Cmd {
	if strings.HasPrefix(args[0], "curl") {
		peers.Need(t, "curl")
	}
	return exec.Command(os.Args[0], streamProgram, args[0])
}

// streamClients are HTTP libraries without an SDK, each with one of its protocols.
var streamClients = []struct {
	name, protocol string
	program        program
	kind           string
	tls            bool // HTTP/2 by ALPN, which the pipe terminates; not through package lastcall
	grpc           bool // not through package httpdrain
}{
	{"requests", "HTTP/1.1", streamPython, "requests", false, false},
	{"urllib3", "HTTP/1.1", streamPython, "urllib3", false, false},
	{"httpx", "HTTP/1.1", streamPython, "httpx", false, false},
	{"httpx", "HTTP/2", streamPython, "httpx-h2", false, false},
	{"aiohttp", "HTTP/1.1", streamPython, "aiohttp", false, false},
	{"Node node:http", "HTTP/1.1", streamNode, "http", false, false},
	{"Node node:http2", "HTTP/2", streamNode, "http2", false, false},
	{"Node fetch", "HTTP/1.1", streamNode, "fetch", false, false},
	{"undici", "HTTP/1.1", streamNode, "undici", false, false},
	{"undici allowH2", "HTTP/2", streamNode, "undici-h2", true, false},
	{"Go net/http", "HTTP/1.1", streamGo, "go", false, false},
	{"Go net/http", "HTTP/2", streamGo, "go-h2", false, false},
	{"curl", "HTTP/1.1", streamGo, "curl", false, false},
	{"curl", "HTTP/2", streamGo, "curl-h2", false, false},
	{"Java 17 HttpClient", "HTTP/1.1", javaStream, "jdk", false, false},
	{"Java 17 HttpClient", "HTTP/2", javaStream, "jdk-h2", true, false},
	{"OkHttp", "HTTP/1.1", javaStream, "okhttp", false, false},
	{"OkHttp", "HTTP/2", javaStream, "okhttp-h2", false, false},
	{"Reactor Netty", "HTTP/1.1", javaStream, "netty", false, false},
	{"Reactor Netty", "HTTP/2", javaStream, "netty-h2", false, false},
	{"Apache HttpClient", "HTTP/1.1", javaStream, "apache", false, false},
	{"Apache HttpClient", "HTTP/2", javaStream, "apache-h2", false, false},
	{"Jetty", "HTTP/1.1", javaStream, "jetty", false, false},
	{"Jetty", "HTTP/2", javaStream, "jetty-h2", false, false},
	{"grpc-go", "gRPC", streamGo, "grpc", false, true},
	{"grpc C-core (Python)", "gRPC", streamPython, "grpc", false, true},
	{"grpc-java", "gRPC", javaStream, "grpc", false, true},
}

// A stream that is open at SIGTERM is received to its last word by every library, and one that the last call cuts raises
// an error, after the error event if its code looks at the response.
func TestStreamClients(t *testing.T) {
	for _, c := range streamClients {
		for _, way := range []string{"pipe", "httpdrain"} {
			if way == "httpdrain" && (c.tls || c.grpc) {
				continue
			}
			t.Run(c.name+" "+c.protocol+" "+way, func(t *testing.T) {
				t.Parallel()
				client := startSDK(t, c.program, c.kind)
				after := fmt.Sprintf("/v1/chat/completions?words=%d", streamWords)
				read := func(isCut bool) sdkResult {
					if way == "httpdrain" {
						p := &proxy{signals: make(chan drain.Signal, 4)}
						p.serve(t, newModel().handler(t, "old"))
						client.begin(t, p.url+after)
						p.signals <- drain.Terminate
						if isCut {
							p.signals <- drain.Hurry
						}
						return client.result(t)
					}
					app := newModel().app
					if c.grpc {
						app = func(t *testing.T, _ *service, _ string) net.Addr { return startGRPC(t) }
					}
					s := startService(t, app)
					if c.tls {
						client.begin(t, "https://"+s.tls+after+" "+s.ca)
					} else {
						client.begin(t, "http://"+s.plain+after)
					}
					if isCut {
						s.cut(t)
						return client.result(t)
					}
					ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
					defer cancel()
					if r, err := s.roll(ctx); err != nil || r.Verdict != "clean" {
						t.Errorf("the pod's report: %+v, %v", r, err)
					}
					return client.result(t)
				}
				whole, cut := read(false), read(true)
				if whole.Words != streamWords || whole.Error != "" || whole.End != "stop" {
					t.Errorf("a stream that ends before the last call: %+v; want %d words", whole, streamWords)
				}
				if cut.Words >= streamWords || cut.Error == "" || cut.End != "" {
					t.Errorf("a stream that the last call cuts: %+v; want an error", cut)
				}
				t.Logf("| %s | %s | %s | %d of %d | %d, then %s |", c.name, c.protocol, way, whole.Words, streamWords, cut.Words, cut.Error)
			})
		}
	}
}

// streamProgram is the argument by which this program is a client of a stream.
const streamProgram = "stream-client"

// runStreamProgram reads streams with net/http, grpc-go or curl, and prints what testdata/stream.py prints.
func runStreamProgram(kind string) int {
	for urls := bufio.NewScanner(os.Stdin); urls.Scan(); {
		line, _ := json.Marshal(readStream(kind, urls.Text()))
		fmt.Println(string(line))
	}
	return 0
}

func readStream(kind, url string) sdkResult {
	var got sdkResult
	var failures []string
	take := func(line string) {
		switch {
		case strings.Contains(line, fmt.Sprintf("w%d ", got.Words+1)):
			if got.Words++; got.Words == 5 {
				fmt.Println("begun")
			}
		case strings.Contains(line, "the server is shutting down"):
			failures = append(failures, "error event")
		case strings.Contains(line, "[DONE]"):
			got.End = "stop"
		}
	}
	read := func(body io.Reader) error {
		lines := bufio.NewScanner(body)
		for lines.Scan() {
			take(lines.Text())
		}
		return lines.Err()
	}
	var err error
	switch kind {
	case "curl", "curl-h2":
		args := []string{"-sSN", "-d", "{}", url}
		if kind == "curl-h2" {
			args = append(args, "--http2-prior-knowledge")
		}
		curl := exec.Command("curl", args...)
		out, pipeErr := curl.StdoutPipe()
		if err = pipeErr; err == nil {
			if err = curl.Start(); err == nil {
				_ = read(out)
				err = curl.Wait()
			}
		}
	case "grpc":
		err = readGRPC(url, func() { take(fmt.Sprintf("w%d ", got.Words+1)) })
		if err == nil {
			got.End = "stop"
		}
	default:
		transport := &http.Transport{Protocols: new(http.Protocols)}
		transport.Protocols.SetHTTP1(kind == "go")
		transport.Protocols.SetUnencryptedHTTP2(kind == "go-h2")
		resp, postErr := (&http.Client{Transport: transport}).Post(url, "application/json", strings.NewReader("{}"))
		if err = postErr; err == nil {
			err = read(resp.Body)
			resp.Body.Close()
		}
	}
	if err != nil {
		failures = append(failures, err.Error())
	}
	got.Error = strings.Join(failures, ", then ")
	return got
}

// readGRPC calls took for each message of a stream.
func readGRPC(url string, took func()) error {
	address, query, _ := strings.Cut(strings.TrimPrefix(url, "http://"), "/")
	var words int
	_, _ = fmt.Sscanf(query[strings.LastIndexByte(query, '=')+1:], "%d", &words)
	cc, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer cc.Close()
	request := &testgrpc.StreamingOutputCallRequest{}
	for range words {
		request.ResponseParameters = append(request.ResponseParameters,
			&testgrpc.ResponseParameters{Size: 1, IntervalUs: int32(pace / time.Microsecond)})
	}
	all, err := testgrpc.NewTestServiceClient(cc).StreamingOutputCall(context.Background(), request)
	for err == nil {
		if _, err = all.Recv(); err == nil {
			took()
		}
	}
	if err == io.EOF {
		return nil
	}
	return fmt.Errorf("%s", strings.ToUpper(status.Code(err).String()))
}
