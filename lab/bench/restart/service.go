package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// service is a lastcall run through all its processes.
type service struct {
	address     string // of the inbound
	status      string // of the status server
	first       *exec.Cmd
	serving     int // process number
	predecessor int // process number of the one before; 0: none
}

// patience is for anything that is waited for.
const patience = 90 * time.Second

func start() (*service, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s := new(service)
	for _, address := range []*string{&s.address, &s.status} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		*address = ln.Addr().String()
		if err := ln.Close(); err != nil {
			return nil, err
		}
	}
	host, port, _ := net.SplitHostPort(s.status)
	s.first = exec.Command(*binary, "run", "--status-address", host, "--status-port", port,
		"--inbound", s.address+"=127.0.0.1:0,protocol=http", "--termination-log", "", "--", self, "-app", "{port}")
	s.first.Env = append(os.Environ(), "MINIMUM_DRAIN_DURATION="+minimum.String())
	s.first.Stderr = os.Stderr
	if err := s.first.Start(); err != nil {
		return nil, err
	}
	s.serving = s.first.Process.Pid
	err = until("the app answers", func() bool {
		resp, err := http.Get("http://" + s.address)
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	if err != nil {
		s.end()
		return nil, err
	}
	return s, nil
}

// restart asks for a hot restart and waits for its answer.
func (s *service) restart() error {
	resp, err := http.Post("http://"+s.status+"/hot-restart", "", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("hot restart: %s: %s", resp.Status, body)
	}
	_, err = fmt.Sscanf(string(body), "pid %d", &s.serving)
	return err
}

// awaitGone waits until a process has exited; a zombie counts as exited.
func (s *service) awaitGone(pid int) error {
	if pid == 0 {
		return nil
	}
	if pid == s.first.Process.Pid {
		return ignoreCode(s.first.Wait())
	}
	return until(fmt.Sprintf("process %d has drained", pid), func() bool { return isGone(pid) })
}

func isGone(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, after, _ := bytes.Cut(stat, []byte(") "))
	return bytes.HasPrefix(after, []byte("Z"))
}

// end leaves nothing behind.
func (s *service) end() {
	_ = syscall.Kill(s.serving, syscall.SIGTERM)
	if s.serving == s.first.Process.Pid {
		_ = s.first.Wait()
		return
	}
	_ = until("the service has ended", func() bool { return isGone(s.serving) })
}

func ignoreCode(err error) error {
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return nil
	}
	return err
}

func until(what string, f func() bool) error {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if f() {
			return nil
		}
	}
	return fmt.Errorf("wait until %s: not within %v", what, patience)
}
