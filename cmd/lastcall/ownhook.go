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

	"github.com/lastcall-dev/lastcall/internal/sidecar/probe"
	"github.com/lastcall-dev/lastcall/internal/sidecar/tcp"
)

// own is the command or request of wait --before and --after: the app's own preStop hook, whose place lastcall's has
// taken. One that stops the app has to run after the wait.
type own struct {
	before, after time.Duration // limits, of which one is set; that of after begins with the wait
	args          []string      // a command, or a URL and header fields
	took          time.Duration // before the wait
}

func (b *own) register(flags *pflag.FlagSet) {
	const what = "the command behind --, or request the URL there " +
		"(and send the header fields behind it, as NAME: VALUE): the app's own preStop hook; "
	flags.DurationVar(&b.after, "after", 0, "after the wait, run "+what+"both take this `duration` at most")
	flags.DurationVar(&b.before, "before", 0, "before the wait, run "+what+"it takes this `duration` at most")
}

// check takes the arguments of the command line, which only --before and --after have.
func (b *own) check(cmd *cobra.Command, args []string) error {
	flag, limit := "after", b.after
	if cmd.Flags().Changed("before") {
		flag, limit = "before", b.before
	}
	isSet := cmd.Flags().Changed(flag)
	switch b.args = args; {
	case flag == "before" && cmd.Flags().Changed("after"):
		return usagef("use only one of --before and --after")
	case !isSet && len(args) > 0:
		return usagef("unexpected argument %q: a command needs --after or --before, such as --after 20s -- /leave", args[0])
	case isSet && len(args) == 0:
		return usagef("--%s needs a command or a URL behind --, such as --%[1]s 20s -- /leave", flag)
	case isSet && limit <= 0:
		return usagef("--%s %v: must be positive", flag, limit)
	}
	return nil
}

// run runs it for at most limit.
func (b *own) run(cmd *cobra.Command, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), limit)
	defer cancel()
	err := b.start(ctx, cmd.ErrOrStderr())
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("ended after %v", limit)
	case err == nil:
		return nil
	}
	return fmt.Errorf("the app's own preStop %s: %w", b.args[0], err)
}

func (b *own) start(ctx context.Context, output io.Writer) error {
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
func (b *own) request(ctx context.Context) error {
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
