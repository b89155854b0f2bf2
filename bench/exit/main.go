// Exit measures how long lastcall's sidecar stays after it is no longer needed:
// from the last byte of the last answer, from the end of the minimum drain of an
// idle pod, and with clients that hold idle keep-alive connections.
//
//	go run ./bench/exit -lastcall bin/lastcall
package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"
)

var (
	binary = flag.String("lastcall", "bin/lastcall", "the `program` to measure")
	runs   = flag.Int("runs", 50, "how many terminations of each kind, 1 to 1000")
	atOnce = flag.Int("at-once", 4, "how many at a time")
)

const minimumDrain = time.Second

func main() {
	flag.Parse()
	if *runs < 1 || *runs > 1000 || *atOnce < 1 {
		fmt.Fprintln(os.Stderr, "exit: -runs takes 1 to 1000, -at-once 1 or more")
		os.Exit(2)
	}
	app, err := startApp()
	if err != nil {
		fmt.Fprintln(os.Stderr, "exit:", err)
		os.Exit(1)
	}
	fmt.Printf("| what | runs | min | median | p90 | max |\n|---|---|---|---|---|---|\n")
	for _, m := range []struct {
		what string
		env  []string
		run  func(*sidecar) (time.Duration, error)
	}{
		{"last byte of the last answer to exit, ended at a random moment", []string{"MINIMUM_DRAIN_DURATION=1s", "LASTCALL_QUIET_TIME=0s"}, afterAnswer},
		{"end of the minimum drain (1 s) to exit, idle pod", []string{"MINIMUM_DRAIN_DURATION=1s", "LASTCALL_QUIET_TIME=0s"}, idle},
		{"end of the quiet time (1 s) to exit, idle pod, no minimum drain", []string{"MINIMUM_DRAIN_DURATION=0s", "LASTCALL_QUIET_TIME=1s"}, idle},
		{"end of the minimum drain (1 s) to exit, 10 idle keep-alive connections", []string{"MINIMUM_DRAIN_DURATION=1s", "LASTCALL_QUIET_TIME=0s", "LASTCALL_IDLE_GRACE=0s"}, idleKeepAlive},
	} {
		took, err := measure(app, m.env, m.run)
		if err != nil {
			fmt.Fprintf(os.Stderr, "exit: %s: %v\n", m.what, err)
			os.Exit(1)
		}
		slices.Sort(took)
		at := func(q float64) string { return ms(took[int(q*float64(len(took)-1))]) }
		fmt.Printf("| %s | %d | %s | **%s** | %s | %s |\n", m.what, len(took), at(0), at(0.5), at(0.9), at(1))
	}
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000) }

// startApp answers /N after N milliseconds.
func startApp() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	go func() {
		_ = http.Serve(ln, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n, _ := strconv.Atoi(r.URL.Path[1:])
			time.Sleep(time.Duration(n) * time.Millisecond)
			_, _ = io.WriteString(w, "done")
		}))
	}()
	return ln.Addr().String(), nil
}

// measure runs one kind of termination again and again.
func measure(app string, env []string, run func(*sidecar) (time.Duration, error)) ([]time.Duration, error) {
	var (
		mu    sync.Mutex
		took  []time.Duration
		first error
		group sync.WaitGroup
		slots = make(chan struct{}, *atOnce)
	)
	for range *runs {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			d, err := once(app, env, run)
			mu.Lock()
			defer mu.Unlock()
			if took = append(took, d); err != nil && first == nil {
				first = err
			}
		})
	}
	group.Wait()
	return took, first
}

// sidecar is one process under measurement.
type sidecar struct {
	cmd     *exec.Cmd
	address string
}

func once(app string, env []string, run func(*sidecar) (time.Duration, error)) (time.Duration, error) {
	listen, err := freeAddress()
	if err != nil {
		return 0, err
	}
	status, err := freeAddress()
	if err != nil {
		return 0, err
	}
	host, port, _ := net.SplitHostPort(status)
	cmd := exec.Command(*binary, "agent", "--inbound", listen+"="+app+",protocol=http", "--status-address", host, "--status-port", port, "--termination-log", "")
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	s := &sidecar{cmd: cmd, address: listen}
	d, err := func() (time.Duration, error) {
		for range 1000 {
			if resp, err := http.Get("http://" + status + "/healthz/ready"); err == nil {
				resp.Body.Close()
				return run(s)
			}
			time.Sleep(5 * time.Millisecond)
		}
		return 0, fmt.Errorf("the sidecar does not become ready")
	}()
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	return d, err
}

func freeAddress() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer ln.Close()
	return ln.Addr().String(), nil
}

func (s *sidecar) terminate() time.Time {
	at := time.Now()
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	return at
}

// gone waits for the process's end.
func (s *sidecar) gone() (time.Time, error) {
	err := s.cmd.Wait()
	return time.Now(), err
}

// get asks on a connection of its own and returns when the last byte came.
func (s *sidecar) get(path string) (net.Conn, time.Time, error) {
	conn, err := net.Dial("tcp", s.address)
	if err != nil {
		return nil, time.Time{}, err
	}
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: app\r\n\r\n", path); err != nil {
		return nil, time.Time{}, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return nil, time.Time{}, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return conn, time.Now(), err
}

func afterAnswer(s *sidecar) (time.Duration, error) {
	type answer struct {
		at  time.Time
		err error
	}
	answered := make(chan answer, 1)
	go func() {
		conn, at, err := s.get(fmt.Sprintf("/%d", 1200+rand.IntN(1500)))
		if err == nil {
			conn.Close()
		}
		answered <- answer{at, err}
	}()
	time.Sleep(50 * time.Millisecond) // the request is on its way
	s.terminate()
	gone, err := s.gone()
	if err != nil {
		return 0, err
	}
	a := <-answered
	return gone.Sub(a.at), a.err
}

func idle(s *sidecar) (time.Duration, error) {
	began := s.terminate()
	gone, err := s.gone()
	return gone.Sub(began) - minimumDrain, err
}

func idleKeepAlive(s *sidecar) (time.Duration, error) {
	for range 10 {
		conn, _, err := s.get("/0")
		if err != nil {
			return 0, err
		}
		defer conn.Close()
	}
	return idle(s)
}
