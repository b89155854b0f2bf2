package main

import (
	"bytes"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// sidecar is one process under measurement.
type sidecar struct {
	cmd     *exec.Cmd
	address string
	dir     string
	began   time.Time
}

const accessLog = "access.log"

// start runs a sidecar in front of app.
func start(app, protocol string, env []string) (s *sidecar, err error) {
	s = new(sidecar)
	var status, admin string
	for _, address := range []*string{&s.address, &status, &admin} {
		if *address, err = freeAddress(); err != nil {
			return nil, err
		}
	}
	if s.dir, err = os.MkdirTemp("", "exit"); err != nil {
		return nil, err
	}
	host, port, _ := net.SplitHostPort(status)
	_, adminPort, _ := net.SplitHostPort(admin)
	args := []string{"agent", "--status-address", host, "--status-port", port, "--termination-log", "",
		"--inbound", s.address + "=" + app + ",protocol=" + protocol}
	if *proxy == "envoy" {
		args = append(args, "--proxy", "envoy", "--envoy-path", *envoy, "--access-log", filepath.Join(s.dir, accessLog))
	} else {
		args = append(args, "--admin-address", "off")
	}
	s.cmd = exec.Command(*binary, args...)
	s.cmd.Env = append(append(os.Environ(), `PROXY_CONFIG={"proxyAdminPort":`+adminPort+`}`), env...)
	s.cmd.Stderr = os.Stderr
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	for range 2000 {
		if resp, err := http.Get("http://" + status + "/healthz/ready"); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return s, nil
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
	s.end()
	return nil, errors.New("the sidecar does not become ready")
}

// end leaves nothing behind.
func (s *sidecar) end() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	_ = os.RemoveAll(s.dir)
}

func once(app string, sc scene) (took time.Duration, logged bool, err error) {
	s, err := start(app, sc.protocol, sc.env)
	if err != nil {
		return 0, false, err
	}
	defer s.end()
	// The first line of an Envoy is flushed at once: it must not be the last.
	if conn, _, err := s.get("/0"); err == nil {
		conn.Close()
	}
	if took, err = sc.run(s); err != nil {
		return 0, false, err
	}
	log, _ := os.ReadFile(filepath.Join(s.dir, accessLog))
	return took, bytes.Contains(log, []byte(lastPath)), nil
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
	s.began = time.Now()
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	return s.began
}

// gone waits for the process's end.
func (s *sidecar) gone() (time.Time, error) {
	err := s.cmd.Wait()
	return time.Now(), err
}
