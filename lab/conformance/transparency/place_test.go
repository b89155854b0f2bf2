package transparency

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/logs/logstest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

// The ways to a server. direct is the measure of the others.
const (
	direct   = "direct"
	captured = "captured"
)

var behind = []string{"http", "auto", "tcp", captured}

// place is a pod in which the servers run: without capture as seen on its loopback interface, where the clients of all
// other ways are, too, and captured from the client's namespace. Without root, it is this machine, and nothing is captured.
type place struct {
	t        *testing.T
	net      *nettest.Net // nil without root
	last     int          // port, in a network of our own
	inbounds []string     // arguments of the agent
}

func newPlace(t *testing.T) *place {
	p := &place{t: t, last: 20000}
	if os.Geteuid() == 0 {
		p.net = nettest.New(t)
	}
	return p
}

func (p *place) modes() []string {
	if p.net == nil {
		return behind[:3]
	}
	return behind
}

// port is one of a server, and those of the pipe before it.
type port map[string]int

func (p *place) port() port {
	ports := port{}
	for _, mode := range []string{direct, "http", "auto", "tcp"} {
		p.last++
		ports[mode] = p.last
		if p.net == nil {
			_, number, _ := net.SplitHostPort(nettest.FreeAddress(p.t, "127.0.0.1"))
			ports[mode], _ = strconv.Atoi(number)
		}
	}
	for _, mode := range []string{"http", "auto", "tcp"} {
		p.inbounds = append(p.inbounds, "--inbound", fmt.Sprintf("127.0.0.1:%d=127.0.0.1:%d,protocol=%s", ports[mode], ports[direct], mode))
	}
	return ports
}

// address is where a mode's clients connect to.
func (p *place) address(at port, mode string) string {
	if mode == captured {
		return p.net.Pod.TCP4(uint16(at[direct]))
	}
	return fmt.Sprint("127.0.0.1:", at[mode])
}

func (p *place) listen(at port) net.Listener {
	address := fmt.Sprint("0.0.0.0:", at[direct])
	if p.net == nil {
		return nettest.Listen(p.t, address)
	}
	return p.net.Pod.Listen(p.t, "tcp", address)
}

// dial connects as a mode's client.
func (p *place) dial(mode string) func(ctx context.Context, network, address string) (net.Conn, error) {
	if n := p.clients(mode); n != nil {
		return n.Dial
	}
	return new(net.Dialer).DialContext
}

// clients is the namespace of a mode's clients.
func (p *place) clients(mode string) *nettest.Namespace {
	switch {
	case p.net == nil:
		return nil
	case mode == captured:
		return p.net.Client
	}
	return p.net.Pod
}

// start starts a program, which ends with the test.
func (p *place) start(in *nettest.Namespace, cmd *exec.Cmd) *logstest.Buffer {
	p.t.Helper()
	log := &logstest.Buffer{}
	if cmd.Stdout == nil {
		cmd.Stdout = log
	}
	cmd.Stderr = log
	// Workers of a server that was killed hold its outputs and outlive it.
	cmd.WaitDelay = time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err := error(nil)
	if in == nil {
		err = cmd.Start()
	} else {
		err = in.Start(cmd)
	}
	if err != nil {
		p.t.Fatalf("start %s: %v", cmd, err)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = cmd.Wait() }()
	p.t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-done
		if p.t.Failed() && cmd.Path == program { // servers log what their clients do
			text := log.String()
			p.t.Logf("%s:\n%s", cmd.Args[:min(3, len(cmd.Args))], text[max(0, len(text)-2000):])
		}
	})
	return log
}

// serve starts a server's program in the pod.
func (p *place) serve(cmd *exec.Cmd) *logstest.Buffer {
	p.t.Helper()
	var in *nettest.Namespace
	if p.net != nil {
		in = p.net.Pod
	}
	return p.start(in, cmd)
}

// await waits until a server listens.
func (p *place) await(at port, log fmt.Stringer) {
	p.t.Helper()
	polltest.Eventually(p.t, fmt.Sprint("a listener on port ", at[direct]), func() bool {
		c, err := p.dial(direct)(p.t.Context(), "tcp", p.address(at, direct))
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}, log)
}

// startPipes starts lastcall before all ports that there are.
func (p *place) startPipes() {
	p.t.Helper()
	common := []string{"agent", "--termination-log", "", "--admin-address", "off", "--annotations", "/none"}
	status := p.port()[direct]
	args := append(common, "--status-address", "127.0.0.1", "--status-port", strconv.Itoa(status))
	p.awaitReady(direct, fmt.Sprint("127.0.0.1:", status), p.serve(exec.Command(program, append(args, p.inbounds...)...)))
	if p.net == nil {
		p.t.Log("not root: no pod is captured")
		return
	}
	capture := exec.Command(program, "capture")
	must.Do(p.t, p.net.Pod.Start(capture))
	if err := capture.Wait(); err != nil {
		p.t.Fatal("capture: ", err)
	}
	log := p.start(p.net.Pod.As(1337, 1337), exec.Command(program, append(common, "--capture")...))
	p.awaitReady(captured, p.net.Pod.TCP4(15020), log)
}

func (p *place) awaitReady(mode, address string, log fmt.Stringer) {
	p.t.Helper()
	client := http.Client{Transport: &http.Transport{DialContext: p.dial(mode), DisableKeepAlives: true}, Timeout: time.Minute}
	polltest.Eventually(p.t, "ready", func() bool {
		response, err := client.Get("http://" + address + "/healthz/ready")
		if err == nil {
			_ = response.Body.Close()
		}
		return err == nil && response.StatusCode == http.StatusOK
	}, log)
}
