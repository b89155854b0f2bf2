// Cluster is a whole Kubernetes node on this machine, made for the end-to-end tests and for trying things out: API
// server, controllers, scheduler, kubelet and kube-proxy of one Kubernetes release, containerd and runc below them, in
// a folder of their own. It needs root and Linux, no Docker engine, and leaves the machine as it was.
//
//	go run ./lab/e2e/cluster up         start it, or say that it is up
//	go run ./lab/e2e/cluster down       end it and clean up; also after a crash
//	go run ./lab/e2e/cluster import F…  load images (OCI or Docker archives)
//	go run ./lab/e2e/cluster env        the variable that kubectl and the tests need
//
// Its folder is cluster in lastcall's cache folder.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

const usage = "usage: cluster up | down | import FILE… | env"

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return errors.New(usage)
	}
	l, err := newLayout()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch verb, rest := args[0], args[1:]; {
	case verb == "env" && len(rest) == 0:
		fmt.Printf("export KUBECONFIG=%s\n", l.kubeconfig())
		return nil
	case verb == "import" && len(rest) > 0:
		return l.importImages(ctx, rest)
	case verb == "up" && len(rest) == 0:
		if os.Getuid() != 0 {
			return errors.New("a node makes mounts, cgroups and network links: it needs root")
		}
		return l.up(ctx)
	case verb == "down" && len(rest) == 0:
		return l.down(context.WithoutCancel(ctx)) // half cleaned up is worse than late
	}
	return fmt.Errorf("%q: %s", args, usage)
}
