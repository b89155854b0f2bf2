//go:build e2e

package e2e

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// seen is the result of a request, and when: of one on a new connection when it began.
type seen struct {
	at     time.Duration // since the deletion
	result string        // 200, another status, or what failed
}

// ended is how a pod ended on the node. Times are since the deletion.
type ended struct {
	request     seen
	connections []seen
	containers  map[string]*end
	gone        time.Duration // the last container
}

type end struct {
	signal time.Duration // 0: it was not seen
	gone   time.Duration
}

func (e *ended) String() string {
	var out strings.Builder
	fmt.Fprintf(&out, "request %s at %.1f;", e.request.result, e.request.at.Seconds())
	for i, c := range e.connections {
		if i+1 == len(e.connections) || e.connections[i+1].result != c.result {
			fmt.Fprintf(&out, " %s until %.1f", c.result, c.at.Seconds())
		}
	}
	for name, c := range e.containers {
		fmt.Fprintf(&out, "; %s signal %.1f, gone %.1f", name, c.signal.Seconds(), c.gone.Seconds())
	}
	return out.String()
}

// standIn is each program of the shapes: a server that does at SIGTERM what $DOES says, and what ends it.
const standIn = `#!/bin/sh
case " $* " in
*" quit "* | *" stop "* | *" graceful-stop "* | *" shutdown "*) exec kill -TERM 1 ;;
*" reload "*) exit ;;
esac
serve() { exec /rehearse httpbin --listen 0.0.0.0:$PORT --max-delay 60s --on-term "$1"; }
case $DOES in
exits) serve exit ;;
finishes) serve close-listener ;;
ignores)
    trap 'echo SIGTERM' TERM
    serve exit &
    while :; do wait; done ;;
reloads)
    trap 'echo SIGTERM; kill -KILL $app' TERM
    while :; do
        (serve exit) & app=$!
        wait $app
    done ;;
*)
    trap 'echo SIGTERM; kill -TERM $app; sleep 3; kill -KILL $app; exit' TERM
    (serve close-listener) & app=$!
    wait $app ;;
esac
`

// standIns is the name of the ConfigMap with these programs.
const standIns = "stand-ins"

var programs = []string{"server", "nginx", "gunicorn", "uwsgi", "apachectl", "redis-cli"}

// configMap has the stand-ins.
func (n *namespace) configMap() {
	n.T.Helper()
	data := map[string]string{}
	for _, name := range programs {
		data[name] = standIn
	}
	// A real one stands in front of another container.
	data["front"] = "#!/bin/sh\nexec " + peers.Need(n.T, "nginx") + " -c /stand-in/front.conf"
	conf := peers.NginxConf("/tmp", "0.0.0.0:8080", "127.0.0.1:8082")
	data["front.conf"] = strings.Replace(conf, "proxy_pass", "proxy_buffering off; proxy_pass", 1)
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: standIns}, Data: data}
	if _, err := client.CoreV1().ConfigMaps(n.Name).Create(n.T.Context(), object, metav1.CreateOptions{}); err != nil {
		n.T.Fatal(err)
	}
}

// manifest of a shape, as plan reads it.
func (s shape) manifest() string {
	annotations := s.more
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s, labels: {app: %[1]s, lastcall.dev/inject: %q}, annotations: {%s}}\nspec: {%s}\n",
		s.id(), strconv.FormatBool(s.inject), annotations, s.spec) +
		fmt.Sprintf("---\napiVersion: v1\nkind: Service\nmetadata: {name: %s}\nspec: {selector: {app: %[1]s}, ports: [{port: 80, targetPort: 8080}]}\n", s.id())
}

func (s shape) id() string {
	return strings.ToLower(strings.NewReplacer(" ", "-", ",", "", "'", "").Replace(s.name))
}

// pod is the shape with stand-ins for its images.
func (s shape) pod(t *testing.T) *corev1.Pod {
	t.Helper()
	text, _, _ := strings.Cut(s.manifest(), "---")
	p := &corev1.Pod{}
	must.Do(t, yaml.UnmarshalStrict([]byte(text), p))
	p.Spec.AutomountServiceAccountToken = new(bool)
	mode := int32(0o555)
	p.Spec.Volumes = []corev1.Volume{{Name: standIns, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: standIns}, DefaultMode: &mode,
	}}}}
	mounts := []corev1.VolumeMount{{Name: standIns, MountPath: "/stand-in"}}
	folders := [][2]string{{"/usr", "/usr"}, {"/usr/lib", "/lib"}, {"/usr/lib64", "/lib64"}, {"/usr/bin", "/bin"}}
	if strings.Contains(s.spec, "command: [front,") { // a program of this machine, as root
		home, err := os.UserHomeDir()
		must.Do(t, err)
		folders = append(folders, [2]string{"/etc", "/etc"}, [2]string{home, home})
		p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64), RunAsGroup: new(int64)}
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
		mounts = append(mounts, corev1.VolumeMount{Name: "tmp", MountPath: "/tmp"})
	}
	for i, f := range folders {
		name := fmt.Sprintf("f%d", i)
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: f[0]}}})
		mounts = append(mounts, corev1.VolumeMount{Name: name, MountPath: f[1], ReadOnly: true})
	}
	fill := func(c *corev1.Container, port string) {
		isBare := strings.Contains(c.Image, "distroless")
		c.Image, c.ImagePullPolicy = builtIn+":"+*tag, corev1.PullNever
		if isBare {
			c.Args = []string{"httpbin", "--listen", ":" + port, "--max-delay", "60s", "--on-term", "exit"}
			return
		}
		c.VolumeMounts = mounts
		c.Env = append(c.Env, corev1.EnvVar{Name: "PATH", Value: "/stand-in:/usr/bin:/bin"}, corev1.EnvVar{Name: "PORT", Value: port},
			corev1.EnvVar{Name: "DOES", Value: cmp.Or(s.does[c.Name], "exits")})
		if len(c.Command) == 0 {
			c.Command = []string{"server"}
		}
	}
	for i := range p.Spec.Containers {
		port := 8081 + i
		if p.Spec.Containers[i].Name == "web" {
			port = 8080
		}
		fill(&p.Spec.Containers[i], strconv.Itoa(port))
	}
	for i := range p.Spec.InitContainers {
		fill(&p.Spec.InitContainers[i], strconv.Itoa(8090+i))
	}
	return p
}

// first is PID 1 of a container, seen from this machine.
func first(container string) (int, error) {
	all, err := filepath.Glob("/proc/[0-9]*/cgroup")
	for _, file := range all {
		if cgroup, _ := os.ReadFile(file); !strings.Contains(string(cgroup), container) {
			continue
		}
		status, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "status"))
		for line := range strings.Lines(string(status)) {
			if f := strings.Fields(line); len(f) > 1 && f[0] == "NSpid:" && f[len(f)-1] == "1" {
				return strconv.Atoi(filepath.Base(filepath.Dir(file)))
			}
		}
	}
	return 0, errors.Join(err, fmt.Errorf("container %s has no process", container))
}

// watch follows the containers of a pod to their ends. What it returns waits for these; deleted is closed at the deletion,
// whose time is began.
func (n *namespace) watch(p *corev1.Pod, began *time.Time, deleted <-chan struct{}) func() map[string]*end {
	n.T.Helper()
	all := map[string]*end{}
	var wg sync.WaitGroup
	for _, s := range append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...) {
		if s.State.Running == nil {
			continue
		}
		_, id, _ := strings.Cut(s.ContainerID, "://")
		pid, err := first(id)
		must.Do(n.T, err)
		fd, err := unix.PidfdOpen(pid, 0)
		must.Do(n.T, err)
		e := &end{}
		all[s.Name] = e
		wg.Go(func() {
			defer func() { _ = unix.Close(fd) }()
			for end := time.Now().Add(patience); time.Now().Before(end); {
				if count, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 1000); count > 0 {
					break
				}
			}
			gone := time.Now()
			<-deleted
			e.gone = gone.Sub(*began)
		})
		logs, err := client.CoreV1().Pods(n.Name).GetLogs(p.Name, &corev1.PodLogOptions{Container: s.Name, Follow: true, Timestamps: true}).Stream(n.T.Context())
		must.Do(n.T, err)
		wg.Go(func() {
			defer func() { _ = logs.Close() }()
			for in := bufio.NewScanner(logs); in.Scan(); {
				stamp, line, _ := strings.Cut(in.Text(), " ")
				if at, err := time.Parse(time.RFC3339Nano, stamp); err == nil && e.signal == 0 && (line == "SIGTERM" || strings.Contains(line, "httpbin is stopping")) {
					<-deleted
					e.signal = max(1, at.Sub(*began))
				}
			}
		})
	}
	return func() map[string]*end { wg.Wait(); return all }
}

// finish deletes a pod with a request in flight, while new clients connect, and returns how it ended.
func (n *namespace) finish(p *corev1.Pod, connect time.Duration) *ended {
	n.T.Helper()
	var began time.Time
	deleted, over := make(chan struct{}), make(chan struct{})
	wait := n.watch(p, &began, deleted)
	e := &ended{}
	var wg sync.WaitGroup
	ctx, cancel := context.WithTimeout(context.WithoutCancel(n.T.Context()), patience)
	defer cancel()
	// What it answers comes in parts from the beginning on: the app has the request.
	reply, err := answering(ctx, url(*p, fmt.Sprintf("/drip?delay=0&numbytes=20&duration=%g", takes.Seconds())))
	must.Do(n.T, err)
	wg.Go(func() {
		e.request.result = result(reply, nil)
		at := time.Now()
		<-deleted
		e.request.at = at.Sub(began)
	})
	began = time.Now()
	must.Do(n.T, client.CoreV1().Pods(n.Name).Delete(n.T.Context(), p.Name, metav1.DeleteOptions{}))
	close(deleted)
	var mu sync.Mutex
	wg.Go(func() {
		ticks := time.NewTicker(100 * time.Millisecond)
		defer ticks.Stop()
		var clients sync.WaitGroup
		defer clients.Wait()
		for {
			at := time.Since(began)
			if at > connect {
				return
			}
			mu.Lock()
			i := len(e.connections)
			e.connections = append(e.connections, seen{at: at})
			mu.Unlock()
			clients.Go(func() {
				got := ask(n.T.Context(), url(*p, "/get"), tolerance)
				mu.Lock()
				defer mu.Unlock()
				e.connections[i].result = got
			})
			select {
			case <-over:
				return
			case <-ticks.C:
			}
		}
	})
	e.containers = wait()
	close(over)
	wg.Wait()
	for _, c := range e.containers {
		e.gone = max(e.gone, c.gone)
	}
	return e
}

// ask sends a request on a new connection, and returns its result.
func ask(ctx context.Context, url string, limit time.Duration) string {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return result(answering(ctx, url))
}

// answering sends a request on a new connection, and returns when its answer begins.
func answering(ctx context.Context, url string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	return (&http.Transport{DisableKeepAlives: true}).RoundTrip(request)
}

// result awaits the end of an answer.
func result(response *http.Response, err error) string {
	var dial *net.OpError
	switch {
	case errors.As(err, &dial) && dial.Op == "dial":
		return "refused"
	case err != nil:
		return "cut"
	}
	defer func() { _ = response.Body.Close() }()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return "cut"
	}
	return strconv.Itoa(response.StatusCode)
}
