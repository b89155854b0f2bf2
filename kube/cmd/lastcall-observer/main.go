// Lastcall-observer reports what the terminations of a node's pods lose.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lastcall-dev/lastcall/internal/listen"
	"github.com/lastcall-dev/lastcall/internal/printable"
	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
	"github.com/lastcall-dev/lastcall/internal/sidecar/logs"
	"github.com/lastcall-dev/lastcall/internal/sidecar/statusserver"
	"github.com/lastcall-dev/lastcall/kube/cmd/internal/kubeconfig"
	"github.com/lastcall-dev/lastcall/kube/observe"
)

const help = `Report what the terminations of this node's pods lose: requests without an answer, refused connections,
new connections long after the beginning, SIGKILL at the deadline. It adds no sidecar and touches no packet: the kernel
reports each socket that ends, with its counters (docs/observer.md).

A pod with lastcall's agent may have less time than its grace period: kubectl delete --grace-period, an eviction, a
shutdown of the node. The observer notifies the agent of the moment of SIGKILL, from within the pod's network namespace
and with the pod's token, so that the last call comes before; see --deadlines.

Each termination is one line on standard output, as JSON, and is counted in the metrics at --listen; pods also get a
Kubernetes Event, unless lastcall's controller makes one of their end. With the variable OTEL_EXPORTER_OTLP_ENDPOINT it
is an OpenTelemetry span, too.

It runs on the node as a DaemonSet, with the node's process numbers (hostPID) and the capabilities SYS_ADMIN and
SYS_PTRACE, which the kernel requires for entering the network namespace of another process.

Exit code: 0 after SIGTERM or Ctrl-C, 1 when it could not observe, 2 for wrong flags.`

// softLimit is the Go runtime's memory limit, bytes; the chart's limit is twice as high.
const softLimit = 64 << 20

type flags struct {
	node, listen, kubeconfig, proc, logFormat string
	events                                    bool

	deadlines     bool
	shutdownGrace time.Duration
}

// version is set by the build (-ldflags "-X main.version=…").
var version = ""

func main() { os.Exit(cli.Main(command(), cli.Version(version))) }

func command() *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:   "lastcall-observer",
		Short: "Report what the terminations of this node's pods lose",
		Long:  help,
		Args:  cli.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	cli.Group(cmd.Flags(), "Cluster", func(flags *pflag.FlagSet) {
		flags.StringVar(&f.node, "node", os.Getenv("NODE_NAME"), "`name` of this node; required, unless NODE_NAME is set")
		flags.StringVar(&f.kubeconfig, "kubeconfig", "",
			"`file` for the connection to the API server (default the pod's service account)")
		flags.StringVar(&f.proc, "proc", "/proc", "`folder` with the node's process table")
		flags.BoolVar(&f.events, "events", true, "create a Kubernetes Event for each termination (needs create on events)")
	})
	cli.Group(cmd.Flags(), "Deadlines", func(flags *pflag.FlagSet) {
		flags.BoolVar(&f.deadlines, "deadlines", true,
			"announce to lastcall's agents that SIGKILL comes before the end of the grace period")
		flags.DurationVar(&f.shutdownGrace, "shutdown-grace-period", 0,
			"`time` that the kubelet gives most pods when the node shuts down: "+
				"its shutdownGracePeriod less shutdownGracePeriodCriticalPods (default unknown)")
	})
	cli.Group(cmd.Flags(), "Observability", func(flags *pflag.FlagSet) {
		flags.StringVar(&f.listen, "listen", ":9090", "`address` for /metrics, /readyz and /healthz, host:port")
		cli.LogFormatFlag(flags, &f.logFormat)
	})
	return cmd
}

func (f *flags) run(cmd *cobra.Command) error {
	if f.node == "" {
		return cli.UsageError{Err: errors.New(
			"--node is missing: set it to the name of this node, as kubectl get nodes shows it")}
	}
	switch {
	case f.shutdownGrace < 0:
		return cli.UsageError{Err: fmt.Errorf("--shutdown-grace-period is %v: must not be negative", f.shutdownGrace)}
	case f.shutdownGrace > 0 && !f.deadlines:
		return cli.UsageError{Err: errors.New("--shutdown-grace-period needs --deadlines")}
	}
	log, written := cli.Log(cmd, f.logFormat, slog.LevelInfo)
	if _, err := os.Stat(f.proc + "/1"); err != nil {
		return cli.UsageError{Err: fmt.Errorf("--proc must be a process table: %w", err)}
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(softLimit)
	}
	if os.Getenv("GOGC") == "" { // 5 MB less; the live heap is small, so that a collection takes a few milliseconds
		debug.SetGCPercent(50)
	}
	config, err := kubeconfig.RESTConfig(f.kubeconfig, "")
	if err != nil {
		return err
	}
	client, err := observe.Client(config)
	if err != nil {
		return err
	}
	traces, err := newSpans(cmd.Context(), f.node, cli.Version(version), log)
	if err != nil {
		return err
	}
	ln, err := listen.Open("tcp", f.listen)
	if err != nil {
		return fmt.Errorf("--listen %s (must be host:port): %w", f.listen, err)
	}
	ctx, stop := cli.SignalContext(cmd.Context())
	defer stop()

	registry := prometheus.NewRegistry()
	stdout := logs.New(os.Stdout, logs.DefaultBound)
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		written.Metric("own"), stdout.Metric("terminations"))
	defer stdout.Close()
	var events observe.Events
	var running sync.WaitGroup
	eventsCtx, endEvents := context.WithCancel(context.WithoutCancel(ctx))
	if f.events {
		events = observe.NewEvents(client, registry, log)
		running.Go(func() { events.Run(eventsCtx) })
	}
	rights := observe.CheckRights()
	if rights != nil {
		log.Error("cannot observe the pods of the node", "error", rights)
	}
	status := newHealth(log, rights)
	server := statusserver.New(status.handler(registry), log)
	running.Go(func() {
		if err := server.Serve(statusserver.Limit(ln)); err != nil && !errors.Is(err, http.ErrServerClosed) {
			log.Error("cannot serve metrics", "error", err)
		}
	})
	o := &observe.Observer{
		Pods: observe.PodsOf(client, f.node), Proc: f.proc, Open: observe.OpenNamespace(ctx, f.proc), Node: f.node,
		Count: observe.NewMetrics(registry), Log: log, API: status.answered, Entered: status.entered,
		Announces: f.deadlines, ShutdownGrace: f.shutdownGrace,
		Report: func(t observe.Termination) {
			if err := json.NewEncoder(printable.JSONWriter(stdout)).Encode(t); err != nil { // one line
				log.Warn("cannot write a termination", "error", err)
			}
			if f.events {
				events.Report(t)
			}
			if traces != nil {
				traces.add(t)
			}
		},
	}
	log.Info("observing the terminations of a node", "node", f.node, "listen", ln.Addr().String())
	o.Run(ctx)
	endEvents()
	ending, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if traces != nil {
		traces.close(ending)
	}
	_ = server.Shutdown(ending)
	running.Wait()
	return nil
}
