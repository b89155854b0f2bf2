package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
)

// presenceTimeout limits the start of the process that stays in the container.
const presenceTimeout = 5 * time.Second

// leavePresence connects to the agent and starts a process that holds the connection. The kernel ends it with the
// container, as every process of its PID namespace, and so closes the connection.
func (f *statusFlags) leavePresence() (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("start a process that ends with this container: %w", err)
		}
	}()
	conn, err := net.DialTimeout("tcp", net.JoinHostPort(f.address, strconv.Itoa(f.port)), presenceTimeout)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(presenceTimeout)); err != nil {
		return err
	}
	req, err := http.NewRequest(http.MethodPost, "http://"+conn.RemoteAddr().String()+"/present", nil)
	if err != nil {
		return err
	}
	if err := req.Write(conn); err != nil {
		return err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), req)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK { // the body ends with the container
		return fmt.Errorf("POST /present: %s", resp.Status)
	}
	return hold(conn)
}

// hold starts a process that holds a connection as long as this container runs.
func hold(conn net.Conn) error {
	filed, ok := conn.(interface{ File() (*os.File, error) })
	if !ok {
		return fmt.Errorf("%T has no file descriptor", conn)
	}
	file, err := filed.File()
	if err != nil {
		return err
	}
	defer file.Close()
	stay := exec.Command("/proc/self/exe", "present")
	stay.Args[0] = os.Args[0]
	stay.Dir, stay.Env = "/", []string{"GOMAXPROCS=1"}
	stay.ExtraFiles = []*os.File{file}
	stay.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := stay.Start(); err != nil {
		return err
	}
	return stay.Process.Release()
}

// presentCommand is the process that stays.
func presentCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "present",
		Short:  "Hold descriptor 3, a connection to the agent or to the sidecar's hook, until this container or the other side ends",
		Hidden: true,
		Args:   cli.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			// An init process may signal all others when it stops itself.
			signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT)
			agent := os.NewFile(3, "agent")
			conn, err := net.FileConn(agent)
			if err != nil {
				return usagef("present is started by lastcall wait, which passes it a connection: %w", err)
			}
			_ = agent.Close()
			defer conn.Close()
			_, _ = io.Copy(io.Discard, conn)
			return nil
		},
	}
}
