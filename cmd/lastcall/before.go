package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/probe"
	"github.com/lastcall-dev/lastcall/internal/sidecar/tcp"
)

// before is the command or request of wait --before: the app's own preStop hook, whose place lastcall's has taken.
type before struct {
	limit time.Duration
	args  []string // a command, or a URL and header fields
	took  time.Duration
}

func (b *before) register(flags *pflag.FlagSet) {
	flags.DurationVar(&b.limit, "before", 0,
		"first run the command after --, or request the URL there "+
			"(and send the header fields after it, as NAME: VALUE), for this `duration` at most: the app's own preStop hook")
}

// check takes the arguments of the command line, which only --before has.
func (b *before) check(cmd *cobra.Command, args []string) error {
	isSet := cmd.Flags().Changed("before")
	switch b.args = args; {
	case !isSet && len(args) > 0:
		return usagef("unexpected argument %q: a command to run first needs --before, such as --before 20s -- /leave", args[0])
	case isSet && len(args) == 0:
		return usagef("--before needs a command or a URL after --, such as --before 20s -- /leave")
	case isSet && b.limit <= 0:
		return usagef("--before %v: must be positive", b.limit)
	}
	return nil
}

// first runs what is to run before wait, then wait, whatever has become of the first. Its failure is the result, which
// the kubelet reports as an Event.
func (b *before) first(cmd *cobra.Command, wait func() error) error {
	if len(b.args) == 0 {
		return wait()
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(cmd.Context(), b.limit)
	err := b.run(ctx, cmd.ErrOrStderr())
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("it was ended after %v (--before)", b.limit)
	}
	cancel()
	b.took = time.Since(began)
	if err == nil {
		return wait()
	}
	return errors.Join(fmt.Errorf("the app's own preStop %s: %w", b.args[0], err), wait())
}

func (b *before) run(ctx context.Context, output io.Writer) error {
	if strings.HasPrefix(b.args[0], "http://") || strings.HasPrefix(b.args[0], "https://") {
		return b.request(ctx)
	}
	c := exec.CommandContext(ctx, b.args[0], b.args[1:]...)
	c.Stdout, c.Stderr = output, output
	c.WaitDelay = time.Second                           // for a child that holds the output
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a shell's children end with it
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	return c.Run()
}

// request is the kubelet's httpGet: any status is a success. The kubelet sends it to the pod's address, where an app
// may listen alone.
func (b *before) request(ctx context.Context) error {
	header := make(http.Header)
	for _, field := range b.args[1:] {
		name, value, _ := strings.Cut(field, ":")
		header.Add(name, strings.TrimSpace(value))
	}
	_, err := probe.Get(ctx, b.args[0], header, dialPod)
	return err
}

// dialPod connects to a host; localhost is the pod, by its loopback addresses or else by the address of its name.
func dialPod(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil || host != "localhost" {
		return tcp.DialLoopback(ctx, network, address)
	}
	conn, err := tcp.DialLoopback(ctx, network, net.JoinHostPort("127.0.0.1", port)) // or ::1
	if err == nil {
		return conn, nil
	}
	name, nameErr := os.Hostname()
	if nameErr != nil {
		return nil, err
	}
	if conn, podErr := new(net.Dialer).DialContext(ctx, network, net.JoinHostPort(name, port)); podErr == nil {
		return conn, nil
	}
	return nil, err
}

// rest is the part of a drain that follows the command of --before: the same deadline, and the rest of the minimum
// drain, but at least the quiet time, because connections that arrived in between were not seen.
func (b *before) rest(c drain.Config) drain.Config {
	if b.took == 0 {
		return c
	}
	c.MinimumDrain = max(c.MinimumDrain-b.took, min(c.QuietTime, c.MinimumDrain))
	deadline := max(c.LastCallAfter()-b.took, time.Millisecond)
	c.GracePeriod, c.Deadline = max(c.GracePeriod-b.took, deadline), deadline
	return c
}
