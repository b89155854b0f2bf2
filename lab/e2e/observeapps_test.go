//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	corev1 "k8s.io/api/core/v1"

	machine "github.com/lastcall-dev/lastcall/internal/sidecar/observe"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
)

// kind is an app and how it stops.
type kind struct {
	app
	inject bool
	asks   string        // how clients ask: "" is HTTP/1.1, "redis", "grpc"
	hold   time.Duration // of a request that is in flight at the deletion
	late   int           // new connections after the deletion, every 50 ms
	killed bool
}

func httpbinArgs(onTerm string) []string {
	return []string{"httpbin", "--listen", ":8080", "--max-delay", "60s", "--on-term", onTerm}
}

// kinds are those of each run.
func kinds(t *testing.T) []kind {
	return []kind{
		{app: app{name: "exits"}, hold: 20 * time.Second, late: 10},
		{app: app{name: "closes-listener", args: httpbinArgs("close-listener")}, hold: 2 * time.Second, late: 10},
		{app: app{name: "shutdown", args: httpbinArgs("drain")}, hold: 2 * time.Second, late: 10},
		{app: app{name: "sleeps", more: preStop(5)}, hold: time.Second, late: 20},
		{app: app{name: "killed", args: httpbinArgs("drain"), grace: 2}, hold: 20 * time.Second, killed: true},
		{app: app{name: "lastcall"}, inject: true, hold: 3 * time.Second, late: 20},
		{app: nginx(t), hold: 5 * time.Second, late: 5},
		{app: app{name: "redis", image: "local/talk:" + *tag, probe: "tcpSocket: {port: http}", more: onMachine(t,
			peers.Need(t, "redis-server")+" --port 8080 --bind 0.0.0.0 --protected-mode no --save ''")}, asks: "redis", hold: 20 * time.Second},
	}
}

// moreKinds are those of a run with -terminations, as far as the machine has their programs.
func moreKinds(t *testing.T) []kind {
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	out := []kind{
		{app: app{name: "gunicorn", image: "local/httpbin:" + *tag, args: []string{"-m", "gunicorn", "--bind=0.0.0.0:8080", "--threads=32", "--keep-alive=60", "--graceful-timeout=1", "httpbin:app"}}, hold: 8 * time.Second, late: 5},
		{app: app{name: "go-http", image: "local/libraryserver:" + *tag, args: []string{"shutdown"}}, hold: 2 * time.Second, late: 10},
		{app: app{name: "grpc", image: "local/libraryserver:" + *tag, args: []string{"die"}}, asks: "grpc", hold: 20 * time.Second},
		{app: app{name: "envoy", annotations: map[string]string{"lastcall.dev/proxy": "envoy"}}, inject: true, hold: 3 * time.Second, late: 20},
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
		out = append(out, kind{app: app{name: a.name, image: "local/talk:" + *tag, more: onMachine(t, a.command)}, hold: a.hold, late: a.late})
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
	folders := [][2]string{{"/usr", "/usr"}, {"/usr/lib", "/lib"}, {"/usr/lib64", "/lib64"}, {"/usr/bin", "/bin"}, {"/etc", "/etc"}, {home, home}, {apps, "/apps"}}
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
	text = strings.Replace(text, "exec ", fmt.Sprintf("printf %%s '%s' >/tmp/nginx.conf; exec ", strings.ReplaceAll(peers.NginxConf("/tmp", "0.0.0.0:8080", "127.0.0.1:9091"), "\n", " ")), 1)
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
	n.Apply(fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: client}\nspec:\n  terminationGracePeriodSeconds: 0\n  containers: [{name: rest, image: %q, imagePullPolicy: Never, args: [rest]}]\n", "local/talk:"+*tag))
	n.Kubectl("wait", "--for=condition=Ready", "pod/client", "--timeout", n.Patience.String())
	id := n.Kubectl("get", "pod", "client", "--output", "jsonpath={.status.containerStatuses[0].containerID}")
	_, id, _ = strings.Cut(id, "://")
	pid, err := machine.OfContainer(id)
	if err != nil {
		n.T.Fatal(err)
	}
	file, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		n.T.Fatal(err)
	}
	n.T.Cleanup(func() { _ = file.Close() })
	return inside{file}
}

// dial connects from the pod's network.
func (in inside) dial(ctx context.Context, address string) (c net.Conn, err error) {
	err = machine.Within(int(in.file.Fd()), func() (err error) {
		c, err = new(net.Dialer).DialContext(ctx, "tcp", address)
		return err
	})
	return c, err
}

// conversation is a connection of a client.
type conversation struct {
	close func()
	brief func() func() bool // asks what is answered at once; the result waits, and reports whether it was answered
	long  func() func() bool // asks what takes the kind's hold
}

// converse connects to a pod of a kind.
func (k kind) converse(ctx context.Context, from inside, p corev1.Pod) (conversation, error) {
	if k.asks == "grpc" {
		conn, err := grpc.NewClient("passthrough:///"+net.JoinHostPort(p.Status.PodIP, "9090"), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry(),
			grpc.WithContextDialer(from.dial))
		if err != nil {
			return conversation{}, err
		}
		call := func(takes time.Duration) func() func() bool {
			return func() func() bool {
				return func() bool {
					_, err := pb.NewTestServiceClient(conn).UnaryCall(ctx, &pb.SimpleRequest{ResponseSize: int32(takes.Milliseconds())})
					return err == nil
				}
			}
		}
		return conversation{func() { _ = conn.Close() }, call(0), call(k.hold)}, nil
	}
	conn, err := from.dial(ctx, net.JoinHostPort(p.Status.PodIP, "8080"))
	if err != nil {
		return conversation{}, err
	}
	hangUp := func() { _ = conn.Close() }
	if k.asks == "redis" {
		tell := func(command string) func() func() bool {
			return func() func() bool {
				_, err := conn.Write([]byte(command + "\r\n"))
				return func() bool {
					if err == nil {
						_, err = conn.Read(make([]byte, 64))
					}
					return err == nil
				}
			}
		}
		return conversation{hangUp, tell("PING"), tell(fmt.Sprintf("BLPOP queue %g", k.hold.Seconds()))}, nil
	}
	return conversation{hangUp, func() func() bool { return askOn(conn, "/get") }, func() func() bool { return askOn(conn, fmt.Sprintf("/delay/%g", k.hold.Seconds())) }}, nil
}
