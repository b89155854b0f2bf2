//go:build e2e

package e2e

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/loadtest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
)

// way is how a pod ends. Each protocol with which its clients talk is a kind of end.
type way struct {
	app
	protocols string        // names of protocols
	onTerm    string        // of lab/e2e/talk, if the app has no image; empty: exit
	inject    bool          // lastcall
	period    int           // of the readiness probe, s; 0: 5
	hold      time.Duration // of a request that is in flight at the end
	late      int           // new connections after the deletion, every 50 ms
	evicted   bool          // by the eviction API
	fail      string        // the app's container ends first, by lab/e2e/talk's /fail
	again     time.Duration // the deletion comes so long after that; 0: when the container runs again
}

func lastcall(annotations ...string) map[string]string {
	out := map[string]string{}
	for i := 0; i < len(annotations); i += 2 {
		out["lastcall.dev/"+annotations[i]] = annotations[i+1]
	}
	return out
}

// long is the time of a request that only a cut ends; short that of one that a drain awaits.
const long, short = 25 * time.Second, 2 * time.Second

// corpus is the ways those of each run.
func corpus(t *testing.T) []way {
	probed := func(handler string) string {
		return "        livenessProbe: {" + handler + ", periodSeconds: 1, failureThreshold: 3}\n"
	}
	byHTTP, byTCP := "httpGet: {path: /live, port: 8080}", "tcpSocket: {port: 8080}"
	return []way{
		{
			app: app{name: "exits"}, hold: long, late: 10,
			protocols: "http kept loop tls12 tls12-later tls13 tls13-later h2c h2 h2-quick body websocket " +
				"websocket-idle lines grpc",
		},
		{app: app{name: "shutdown"}, onTerm: "shutdown", hold: short, late: 10,
			protocols: "http kept loop tls13 tls13-later h2-quick body websocket lines grpc"},
		{app: app{name: "closes"}, onTerm: "close", hold: short, late: 10,
			protocols: "http kept loop tls12 h2c websocket-idle"},
		{app: app{name: "sleeps", more: preStop(3)}, hold: short / 2, late: 20,
			protocols: "http loop tls13 h2 body websocket"},
		{app: app{name: "native", grace: 12}, inject: true, hold: short, late: 20,
			protocols: "http kept loop tls13 h2-quick body websocket websocket-idle lines grpc"},
		{app: app{name: "native-last-call", grace: 8}, inject: true, hold: long, protocols: "http body websocket"},
		{app: app{name: "classic", grace: 12, annotations: lastcall("sidecar", "classic")}, inject: true, hold: short,
			late:      20,
			protocols: "http kept h2c websocket"},
		{app: app{name: "hook", grace: 12, annotations: lastcall("proxy", "sockets")}, inject: true, hold: short,
			late:      20,
			protocols: "http kept tls13 h2c body"},
		{app: app{name: "probed", probe: byHTTP, more: probed(byHTTP)}, period: 1, onTerm: "close", hold: short,
			late:      10,
			protocols: "http tls13"},
		{app: app{name: "probed-tcp", probe: byTCP, more: probed(byTCP)}, period: 1, onTerm: "close", hold: short,
			protocols: "http kept"},
		{
			app: app{name: "probed-classic", probe: byHTTP, more: probed(byHTTP) + preStop(3),
				annotations: lastcall("sidecar", "classic", "pre-stop", "keep")},
			inject: true, period: 1, onTerm: "close", hold: short, late: 10, protocols: "http",
		},
		{app: app{name: "killed", grace: 2}, onTerm: "shutdown", hold: long,
			protocols: "http tls13 h2 body websocket"},
		{app: app{name: "evicted"}, hold: long, late: 5, evicted: true, protocols: "http tls13-later"},
		{app: app{name: "evicted-native"}, hold: short, late: 20, evicted: true, inject: true, protocols: "kept"},
		{app: app{name: "liveness", more: probed(byHTTP)}, hold: long, fail: "sick",
			protocols: "http tls13 websocket"},
		{app: app{name: "crash"}, hold: long, fail: "exit", protocols: "http tls13 h2"},
		{app: app{name: "crash-deleted"}, hold: long, fail: "exit", again: 6 * time.Second, protocols: "http"},
		{app: app{name: "memory", more: "        resources: {limits: {memory: 96Mi}}\n"}, hold: long, fail: "memory",
			protocols: "http"},
		{app: nginx(t), hold: 5 * time.Second, protocols: "http"},
		{app: app{name: "redis", image: "local/talk:" + *tag, probe: "tcpSocket: {port: http}", more: onMachine(t,
			peers.Need(t, "redis-server")+" --port 8080 --bind 0.0.0.0 --protected-mode no --save ''")},
			hold: long, protocols: "redis"},
	}
}

// moreOfCorpus is those of a run with -terminations, as far as the machine has their programs.
func moreOfCorpus(t *testing.T) []way {
	home, err := os.UserHomeDir()
	must.Do(t, err)
	out := []way{
		{app: app{name: "gunicorn", image: "local/httpbin:" + *tag,
			args: []string{"-m", "gunicorn", "--bind=0.0.0.0:8080", "--threads=32", "--keep-alive=60",
				"--graceful-timeout=1", "httpbin:app"}}, hold: 8 * time.Second, late: 5},
		{app: app{name: "envoy", annotations: lastcall("proxy", "envoy")}, inject: true, hold: short, late: 20},
	}
	for _, a := range []struct {
		name, needs, command string
		hold                 time.Duration
		late                 int
	}{
		{"node", "node", "node /apps/server.js", 20 * time.Second, 5},
		{"node-close", "node", "node /apps/server.js close", 2 * time.Second, 10},
		{"java", "java", "java -XX:TieredStopAtLevel=1 /apps/Server.java", 20 * time.Second, 5},
		{"uvicorn", filepath.Join(home, ".cache/lastcall/peers/stacks/venv/bin/uvicorn"), "", 2 * time.Second, 10},
	} {
		path, err := exec.LookPath(a.needs)
		if err != nil {
			t.Logf("%s: %v", a.name, err)
			continue
		}
		if a.command == "" {
			a.command = path + " --app-dir /apps --host 0.0.0.0 --port 8080 --timeout-keep-alive 60 asgi:app"
		}
		out = append(out, way{app: app{name: a.name, image: "local/talk:" + *tag, more: onMachine(t, a.command)},
			hold: a.hold, late: a.late})
	}
	for i := range out {
		out[i].protocols = "http"
	}
	return out
}

func preStop(seconds int) string {
	return fmt.Sprintf("        lifecycle: {preStop: {sleep: {seconds: %d}}}", seconds)
}

// onMachine is the rest of a container that runs a program of this machine, with the files that it has there.
func onMachine(t *testing.T, command string) string {
	t.Helper()
	home, err1 := os.UserHomeDir()
	apps, err2 := filepath.Abs("apps")
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	folders := [][2]string{{"/usr", "/usr"}, {"/usr/lib", "/lib"}, {"/usr/lib64", "/lib64"}, {"/usr/bin", "/bin"},
		{"/etc", "/etc"}, {home, home}, {apps, "/apps"}}
	var mounts, volumes strings.Builder
	for i, f := range folders {
		fmt.Fprintf(&mounts, "        - {name: f%d, mountPath: %s, readOnly: true}\n", i, f[1])
		fmt.Fprintf(&volumes, "      - {name: f%d, hostPath: {path: %s}}\n", i, f[0])
	}
	return fmt.Sprintf(`        command: [/bin/sh, -c, %q]
        securityContext: {runAsUser: 0, runAsGroup: 0}
        volumeMounts:
        - {name: tmp, mountPath: /tmp}
%s      volumes:
      - {name: tmp, emptyDir: {}}
%s`, "exec "+command, mounts.String(), volumes.String())
}

// nginx is the real one; what takes its time is answered by a second container.
func nginx(t *testing.T) app {
	text := onMachine(t, peers.Need(t, "nginx")+" -c /tmp/nginx.conf")
	text = strings.Replace(text, "exec ", fmt.Sprintf("printf %%s '%s' >/tmp/nginx.conf; exec ",
		strings.ReplaceAll(peers.NginxConf("/tmp", "0.0.0.0:8080", "127.0.0.1:9091"), "\n", " ")), 1)
	second := fmt.Sprintf(`      - name: upstream
        image: %s:%s
        imagePullPolicy: Never
        args: [%s]
      volumes:
`, builtIn, *tag, quoted([]string{"httpbin", "--listen", "127.0.0.1:9091", "--max-delay", "60s", "--on-term", "drain"}))
	return app{name: "nginx", image: "local/talk:" + *tag, more: strings.Replace(text, "      volumes:\n", second, 1)}
}

// inside is the network of a pod, for clients whose address is not the node's.
type inside struct{ file *os.File }

// client starts a pod that does nothing, and returns its network.
func (n *namespace) client() inside {
	n.T.Helper()
	n.Apply(fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: client}\nspec:\n"+
		"  terminationGracePeriodSeconds: 0\n"+
		"  containers: [{name: rest, image: %q, imagePullPolicy: Never, args: [rest]}]\n", "local/talk:"+*tag))
	_, id, _ := strings.Cut(n.Ready("client").Status.ContainerStatuses[0].ContainerID, "://")
	pid, err := first(id)
	must.Do(n.T, err)
	file, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	must.Do(n.T, err)
	n.T.Cleanup(func() { _ = file.Close() })
	return inside{file}
}

// dial connects from the pod's network.
func (in inside) dial(ctx context.Context, address string) (c net.Conn, err error) {
	err = sockdiag.Within(int(in.file.Fd()), func() (err error) {
		c, err = new(net.Dialer).DialContext(ctx, "tcp", address)
		return err
	})
	return c, err
}

// manifest of one pod.
func (w way) manifest(name string) string {
	if w.image == "" {
		w.image, w.args = "local/talk:"+*tag, []string{"app", "-on-term", cmp.Or(w.onTerm, "exit")}
	}
	_, pod, _ := strings.Cut(w.app.manifest(), "\n  template:\n")
	pod, _, _ = strings.Cut(pod, "---")
	pod = "apiVersion: v1\nkind: Pod" + strings.ReplaceAll("\n"+pod, "\n    ", "\n")
	for _, edit := range [][2]string{
		{"\nmetadata:\n", "\nmetadata:\n  name: " + name + "\n"},
		{"periodSeconds: 1}", fmt.Sprintf("periodSeconds: %d}", cmp.Or(w.period, 5))},
		{"name: http}]", "name: http}, {containerPort: 8082, name: http2}, {containerPort: 8443, name: https}, " +
			"{containerPort: 9090, name: grpc}, {containerPort: 7000, name: tcp}]"},
	} {
		pod = strings.Replace(pod, edit[0], edit[1], 1)
	}
	return pod
}

// asker sends a request that takes a time, 0 for one that is answered at once. What it returns waits for the answer,
// and is how many requests were lost: cut, or not answered at all.
type asker func(takes time.Duration) (lost func() int)

// protocols are how clients talk, on a connection to a port.
var protocols = map[string]struct {
	port  string
	later bool // the request in flight at the end is not the first one of its connection
	talk  func(c net.Conn) asker
}{
	"http":           {"8080", false, overHTTP("/delay/%g")},
	"kept":           {"8080", true, overHTTP("/delay/%g")},
	"loop":           {"8080", true, oneAfterAnother},
	"body":           {"8080", false, overHTTP("/drip?delay=0&numbytes=50&duration=%g")},
	"tls12":          {"8443", false, overTLS(tls.VersionTLS12)},
	"tls12-later":    {"8443", true, overTLS(tls.VersionTLS12)},
	"tls13":          {"8443", false, overTLS(tls.VersionTLS13)},
	"tls13-later":    {"8443", true, overTLS(tls.VersionTLS13)},
	"h2c":            {"8082", false, overHTTP2("http", false)},
	"h2":             {"8443", false, overHTTP2("https", false)},
	"h2-quick":       {"8443", false, overHTTP2("https", true)},
	"websocket":      {"8080", false, overWebSocket(100 * time.Millisecond)},
	"websocket-idle": {"8080", false, overWebSocket(time.Hour)},
	"lines":          {"7000", true, overLines("%g\n")},
	"redis":          {"8080", true, overLines("BLPOP queue %g\r\n")},
	"grpc":           {"9090", false, overGRPC},
}

// one is 1 for a request that failed.
func one(err error) int {
	if err != nil {
		return 1
	}
	return 0
}

// slack is how much longer than its time a request may take.
const slack = 15 * time.Second

func overHTTP(path string) func(net.Conn) asker {
	return func(c net.Conn) asker {
		in := bufio.NewReader(c)
		return func(takes time.Duration) func() int {
			_ = c.SetDeadline(time.Now().Add(takes + slack))
			at := "/get"
			if takes > 0 {
				at = fmt.Sprintf(path, takes.Seconds())
			}
			_, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: test\r\n\r\n", at)
			return func() int {
				if err == nil {
					var response *http.Response
					if response, err = loadtest.Receive(in); err == nil && response.StatusCode != http.StatusOK {
						err = errors.New(response.Status)
					}
				}
				return one(err)
			}
		}
	}
}

// endsWithin reports whether a connection ends in a client's pause between two requests.
func endsWithin(pause time.Duration, c net.Conn, in *bufio.Reader) bool {
	_ = c.SetDeadline(time.Now().Add(pause))
	_, err := in.Peek(1)
	return !errors.Is(err, os.ErrDeadlineExceeded)
}

// oneAfterAnother has short requests with pauses on one connection, until it is closed between two of them.
func oneAfterAnother(c net.Conn) asker {
	return func(takes time.Duration) func() int {
		in := bufio.NewReader(c)
		return func() int {
			for end := time.Now().Add(takes); ; {
				_ = c.SetDeadline(time.Now().Add(slack))
				_, err := fmt.Fprint(c, "GET /delay/0.02 HTTP/1.1\r\nHost: test\r\n\r\n")
				if err != nil {
					return 1
				}
				response, err := loadtest.Receive(in)
				if err != nil || response.Close || time.Now().After(end) {
					return one(err)
				}
				if endsWithin(rand.N(60*time.Millisecond), c, in) {
					return 0
				}
			}
		}
	}
}

func overTLS(version uint16) func(net.Conn) asker {
	return func(c net.Conn) asker {
		config := &tls.Config{InsecureSkipVerify: true, MinVersion: version, MaxVersion: version}
		return overHTTP("/delay/%g")(tls.Client(c, config))
	}
}

// overHTTP2 has a stream for each request, and quick ones at the same time as a long one.
func overHTTP2(scheme string, quick bool) func(net.Conn) asker {
	return func(c net.Conn) asker {
		ctx := context.Background()
		protocols := new(http.Protocols)
		protocols.SetUnencryptedHTTP2(scheme == "http")
		protocols.SetHTTP2(scheme == "https")
		transport := &http.Transport{
			Protocols: protocols, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
			DialContext: func(context.Context, string, string) (net.Conn, error) { return c, nil },
		}
		_ = c.SetDeadline(time.Now().Add(slack))
		conn, dialErr := transport.NewClientConn(ctx, scheme, "test:1")
		_ = c.SetDeadline(time.Time{})
		get := func(takes time.Duration) (err error) {
			if dialErr != nil {
				return dialErr
			}
			ctx, cancel := context.WithTimeout(ctx, takes+slack)
			defer cancel()
			at := fmt.Sprintf("%s://test:1/delay/%g", scheme, takes.Seconds())
			request, err := http.NewRequestWithContext(ctx, http.MethodPost, at, nil)
			if err != nil {
				return err
			}
			response, err := conn.RoundTrip(request)
			if err == nil {
				_, err = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
			}
			return err
		}
		return func(takes time.Duration) func() int {
			answered := make(chan error, 1)
			go func() { answered <- get(takes) }()
			return func() (lost int) {
				for {
					select {
					case err := <-answered:
						return lost + one(err)
					case <-time.After(50 * time.Millisecond):
						if !quick || takes == 0 || dialErr != nil || conn.Available() == 0 { // after GOAWAY
							continue
						}
						if err := get(10 * time.Millisecond); err != nil && !isUnprocessed(err) {
							lost++
						}
					}
				}
			}
		}
	}
}

// isUnprocessed: the request came after GOAWAY, and its client knows that no server has seen it.
func isUnprocessed(err error) bool {
	return strings.Contains(err.Error(), "graceful shutdown GOAWAY") || strings.Contains(err.Error(), "not usable")
}

// overWebSocket sends a message at an interval, and awaits its echo. A WebSocket is lost that ends without a close
// frame.
func overWebSocket(interval time.Duration) func(net.Conn) asker {
	return func(c net.Conn) asker {
		return func(takes time.Duration) func() int {
			_ = c.SetDeadline(time.Now().Add(takes + slack))
			in := bufio.NewReader(c)
			_, err := fmt.Fprint(c, "GET /echo HTTP/1.1\r\nHost: test\r\nOrigin: http://test\r\n"+
				"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"+
				"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
			return func() int {
				if err != nil {
					return 1
				}
				if response, err := http.ReadResponse(in, nil); err != nil ||
					response.StatusCode != http.StatusSwitchingProtocols {
					return 1
				}
				say := func() { _, _ = c.Write([]byte{0x81, 0x81, 0, 0, 0, 0, 'x'}) } // text, masked by zeros
				end := time.Now().Add(max(takes, 100*time.Millisecond))
				for say(); ; {
					_ = c.SetReadDeadline(time.Now().Add(min(interval, time.Until(end))))
					frame, err := in.Peek(2)
					isOver := time.Now().After(end)
					switch {
					case err == nil && frame[0] != 0x88:
						_, _ = in.Discard(2 + int(frame[1]))
					case err == nil, isOver && errors.Is(err, os.ErrDeadlineExceeded):
						_, _ = c.Write([]byte{0x88, 0x80, 0, 0, 0, 0}) // close
						return 0
					case errors.Is(err, os.ErrDeadlineExceeded):
						say()
					default:
						return 1
					}
				}
			}
		}
	}
}

// overLines has an answer for each line.
func overLines(command string) func(net.Conn) asker {
	return func(c net.Conn) asker {
		return func(takes time.Duration) func() int {
			_ = c.SetDeadline(time.Now().Add(takes + slack))
			_, err := fmt.Fprintf(c, command, max(takes, 10*time.Millisecond).Seconds())
			return func() int {
				if err == nil {
					_, err = c.Read(make([]byte, 64))
				}
				return one(err)
			}
		}
	}
}

func overGRPC(c net.Conn) asker {
	conn, err := grpc.NewClient("passthrough:///test", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDisableRetry(),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return c, nil }))
	return func(takes time.Duration) func() int {
		return func() int {
			if err != nil {
				return 1
			}
			ctx, cancel := context.WithTimeout(context.Background(), takes+slack)
			defer cancel()
			request := &pb.StreamingOutputCallRequest{}
			for range 10 {
				request.ResponseParameters = append(request.ResponseParameters,
					&pb.ResponseParameters{Size: 10, IntervalUs: int32(takes.Microseconds() / 10)})
			}
			call, err := pb.NewTestServiceClient(conn).StreamingOutputCall(ctx, request)
			for err == nil {
				_, err = call.Recv()
			}
			if errors.Is(err, io.EOF) {
				return 0
			}
			return 1
		}
	}
}
