package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
	"github.com/lastcall-dev/lastcall/lab/linkerd"
)

// capturedUser is the user of a captured subject: its own connections are not redirected.
const capturedUser = 1337

// unredirected is the client address whose connections are not redirected either.
const unredirected = "127.0.1.1"

// isolated reports whether the run needs a network namespace of its own, for the rules that redirect connections.
func (b *bench) isolated() bool {
	for _, t := range b.tables {
		for _, s := range b.of(t) {
			if s.captured != 0 && b.programs[s.name] != "" {
				return true
			}
		}
	}
	return false
}

// canCapture returns the reason why connections cannot be redirected here.
func canCapture() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("root, which redirects connections: %w", peers.ErrMissing)
	}
	_, err := peers.Find("nft")
	return err
}

// isolate gives this thread, and the process that replaces it, a network namespace with nothing but loopback.
func isolate() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("make a network namespace: %w", err)
	}
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		return fmt.Errorf("set loopback up: %w", err)
	}
	return nil
}

// redirect makes the kernel send connections to the app's port to the subject's, and returns what ends that.
func redirect(ctx context.Context, s subject, app int) (end func(), err error) {
	nft, err := peers.Find("nft")
	if err != nil {
		return nil, err
	}
	const name = "ip lastcall_bench"
	command := exec.CommandContext(ctx, nft, "-f", "-")
	command.Stdin = strings.NewReader(fmt.Sprintf("table %s {\n chain output {\n  type nat hook output priority -100; policy accept;\n"+
		"  meta skuid != %d ip saddr != %s ip daddr 127.0.0.1 tcp dport %d redirect to :%d\n }\n}\n", name, capturedUser, unredirected, app, s.captured))
	if said, err := command.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("redirect port %d to %d: %w: %s", app, s.captured, err, said)
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_ = exec.CommandContext(ctx, nft, append([]string{"delete", "table"}, strings.Fields(name)...)...).Run() // the next rule fails if it is still there
	}, nil
}

// open lets the captured user read the folder and those above it that the bench made.
func (p place) open() error {
	return errors.Join(os.Chmod(p.Dir, 0o755), os.Chmod(filepath.Dir(p.Dir), 0o755)) //nolint:gosec // a folder of configurations
}

// ztunnel without a control plane. The app's address is a workload that takes protocol, TCP or HBONE; one process is
// the source's and the destination's.
func ztunnel(protocol string) func(string, place) ([]string, error) {
	return func(program string, p place) ([]string, error) {
		p.Mode = protocol
		config, err := p.write("ztunnel.yaml")
		return []string{"/usr/bin/env", "FAKE_CA=true", "XDS_ADDRESS=", "LOCAL_XDS_PATH=" + config, "PROXY_MODE=dedicated",
			"PROXY_WORKLOAD_INFO=default/app/default", "INSTANCE_IP=127.0.0.1", "ZTUNNEL_WORKER_THREADS=1", "RUST_LOG=error", program}, err
	}
}

// linkerdProxy is linkerd's proxy with a control plane that signs its certificate and lasts as long as the bench.
func linkerdProxy(program string, p place) ([]string, error) {
	identity, err := linkerd.NewIdentity()
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen as linkerd's control plane: %w", err)
	}
	environment, err := identity.Environment(p.Dir, listener.Addr().String())
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	go func() { _ = identity.Server().Serve(listener) }()
	words := append([]string{"/usr/bin/env"}, environment...)
	return append(words, "LINKERD2_PROXY_CORES=1", "LINKERD2_PROXY_LOG=error", "LINKERD2_PROXY_INBOUND_IPS=127.0.0.1",
		fmt.Sprintf("LINKERD2_PROXY_INBOUND_LISTEN_ADDR=127.0.0.1:%d", linkerdPort),
		fmt.Sprintf("LINKERD2_PROXY_ADMIN_LISTEN_ADDR=127.0.0.1:%d", p.Admin), fmt.Sprintf("LINKERD2_PROXY_OUTBOUND_LISTEN_ADDR=127.0.0.1:%d", p.Status),
		program), nil
}

// The ports that captured subjects take redirected connections at.
const (
	linkerdPort     = 4143
	ztunnelOutbound = 15001
	ztunnelInbound  = 15006
	ourInbound      = 15006
)

// lastcallCaptured is lastcall in the same place.
func lastcallCaptured(program string, p place) ([]string, error) {
	return []string{program, "agent", "--inbound-captured", fmt.Sprintf("127.0.0.1:%d", ourInbound), "--inbound-captured-protocol", "http",
		"--status-address", "127.0.0.1", "--status-port", fmt.Sprint(p.Status), "--admin-address", fmt.Sprintf("127.0.0.1:%d", p.Admin),
		"--termination-log", filepath.Join(p.Dir, "termination-log")}, nil
}
