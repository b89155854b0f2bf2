// Lastcall-controller is lastcall's part in a cluster: the admission webhook, which injects the sidecar, and Kubernetes
// Events of how injected pods ended.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/listen"
	"github.com/lastcall-dev/lastcall/internal/sidecar/certificate"
	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
	"github.com/lastcall-dev/lastcall/internal/sidecar/signals"
	"github.com/lastcall-dev/lastcall/kube/cmd/internal/kubeconfig"
	"github.com/lastcall-dev/lastcall/kube/cmd/internal/kubeflags"
	"github.com/lastcall-dev/lastcall/kube/events"
	"github.com/lastcall-dev/lastcall/kube/webhook"
)

const help = `The admission webhook of a cluster: it adds lastcall to pods as they are created, and warns of timers that
cannot work together when workloads are applied. It also creates a Kubernetes Event of how each injected pod ended
(docs/events.md).

The webhook issues its own certificate, signed by an authority in the Secret --name of --namespace, which all replicas
share, and installs it in the webhook configurations --name. With --cert-file and --key-file another program renews the
certificate, such as cert-manager; the files are read again when they change.

At SIGTERM or Ctrl-C it serves as before for --drain-delay, because other replicas may not be ready yet. Then it sends
its clients to other replicas, accepts connections for --minimum-drain and until --quiet-time has passed without a new
one, and exits when no review is in flight. A second signal ends it at once.

Exit code: 0 after a drain, 1 when it could not serve, 2 for wrong flags.`

type controllerFlags struct {
	listen, plain, cert, key, mesh, kubeconfig, logFormat, terminationLog string
	deny, offline, events                                                 bool
	delay, minimum, quiet, grace                                          time.Duration
	sidecar                                                               kubeflags.Sidecar
	name, namespace                                                       string
}

// version is set by the build (-ldflags "-X main.version=…").
var version = ""

func main() { os.Exit(cli.Main(command(), cli.Version(version))) }

func command() *cobra.Command {
	var f controllerFlags
	cmd := &cobra.Command{
		Use:   "lastcall-controller",
		Short: "The admission webhook and the Events of how pods ended",
		Long:  help,
		Args:  cli.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	cli.Group(flags, "Listeners", func(flags *pflag.FlagSet) {
		flags.StringVar(&f.listen, "listen", ":8443", "`address` for reviews (TLS), host:port")
		flags.StringVar(&f.plain, "plain-listen", ":8080", "`address` for /metrics, /readyz and /healthz, host:port")
	})
	cli.Group(flags, "TLS", func(flags *pflag.FlagSet) {
		flags.StringVar(&f.cert, "cert-file", "", "PEM `file` with a certificate that another program renews")
		flags.StringVar(&f.key, "key-file", "", "PEM `file` with its key")
	})
	cli.Group(flags, "Injected sidecar", f.sidecar.Register)
	cli.Group(flags, "Cluster", func(flags *pflag.FlagSet) {
		flags.StringVar(&f.name, "name", "lastcall-webhook",
			"`name` of the webhook configurations, of the Secret and of the Service")
		flags.StringVarP(&f.namespace, "namespace", "n", "lastcall-system", "`namespace` of the server")
		flags.StringVar(&f.kubeconfig, "kubeconfig", "",
			"`file` for the connection to the API server (default the pod's service account)")
		flags.BoolVar(&f.offline, "offline", false,
			"run without an API server: ignores labels of namespaces, and needs --cert-file")
		kubeflags.MeshConfig(flags, &f.mesh)
		flags.BoolVar(&f.deny, "deny", false, "deny workloads whose timers have an error, instead of warning")
		flags.BoolVar(&f.events, "events", true,
			"create Events of how injected pods ended (needs list and watch on pods, create on events); not with --offline")
	})
	cli.Group(flags, "Drain timers", func(flags *pflag.FlagSet) {
		flags.DurationVar(&f.delay, "drain-delay", 10*time.Second,
			"serve as before for this long after SIGTERM, until the replicas that replace this one are ready")
		flags.DurationVar(&f.minimum, "minimum-drain", 5*time.Second, "then accept new connections for at least this long")
		flags.DurationVar(&f.quiet, "quiet-time", drain.DefaultQuietTime,
			"end the draining phase once no connection has arrived for this long; extends the minimum")
		flags.DurationVar(&f.grace, "grace", 30*time.Second,
			"the pod's grace period; remaining reviews are ended 2s before its end")
	})
	cli.Group(flags, "Observability", func(flags *pflag.FlagSet) {
		cli.LogFormatFlag(flags, &f.logFormat)
		flags.StringVar(&f.terminationLog, "termination-log", "",
			"`file` for the report of its own termination, such as /dev/termination-log")
	})
	return cmd
}

// keeper renews the certificate until ctx ends.
type keeper func(ctx context.Context, seen func(error)) error

func (f *controllerFlags) run(cmd *cobra.Command) error {
	log, written := cli.Log(cmd, f.logFormat, slog.LevelInfo)
	switch {
	case (f.cert == "") != (f.key == ""):
		return cli.UsageError{Err: errors.New("use --cert-file and --key-file together")}
	case f.offline && f.cert == "":
		return cli.UsageError{Err: errors.New("--offline needs --cert-file and --key-file, " +
			"because the webhook keeps its own certificate in a Secret")}
	case f.quiet < 0:
		return cli.UsageError{Err: fmt.Errorf("--quiet-time %v: must be 0s or more", f.quiet)}
	case f.delay < 0 || f.minimum < 0 || f.grace <= f.delay+f.minimum:
		return cli.UsageError{Err: fmt.Errorf("--drain-delay %v and --minimum-drain %v: "+
			"must be 0s or more, and together shorter than --grace %v", f.delay, f.minimum, f.grace)}
	}
	if os.Getenv("GOGC") == "" {
		// With a heap of a few megabytes the collector would run 20 times a second, while pods wait for their review.
		debug.SetGCPercent(400)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(webhook.SoftLimit)
	}
	options, err := f.sidecar.Options(f.mesh)
	if err != nil {
		return err
	}
	h := &webhook.Handler{Inject: options, Deny: f.deny, Log: log}
	var cluster *webhook.Kubernetes
	var reporter *events.Controller
	webhook.NewHandler(h)
	h.Metrics().MustRegister(written.Metric("own"))
	if !f.offline {
		config, err := kubeconfig.RESTConfig(f.kubeconfig, "")
		if err != nil {
			return fmt.Errorf("%w (--offline needs no API server)", err)
		}
		if cluster, err = webhook.NewKubernetes(config, f.namespace, f.name); err != nil {
			return err
		}
		h.Namespace = cluster.Namespace
		if f.events {
			client, err := events.Client(config)
			if err != nil {
				return err
			}
			reporter = events.New(client, h.Metrics(), log)
			h.Learned = reporter.Apps().Learned
		}
	}
	requests := new(drain.Requests)
	_, stop := signals.Receive(signals.Options{Requests: requests, Log: log})
	defer stop()
	ctx := cmd.Context()
	draining := drain.DefaultConfig()
	draining.MinimumDrain, draining.QuietTime, draining.GracePeriod = f.minimum, f.quiet, f.grace-f.delay
	s := &webhook.Server{
		Handler: h, Delay: f.delay, Drain: draining, Requests: requests, TerminationLog: f.terminationLog, Log: log,
	}
	keep, err := f.certificate(ctx, s, cluster)
	if err != nil {
		return err
	}
	reviews, err := open(f.listen, "--listen")
	if err != nil {
		return err
	}
	plain, err := open(f.plain, "--plain-listen")
	if err != nil {
		_ = reviews.Close()
		return err
	}
	keeping, end := context.WithCancel(context.WithoutCancel(ctx)) // until after the drain
	var kept sync.WaitGroup
	var keepErr, eventsErr error
	kept.Go(func() { keepErr = keep(keeping, s.Seen) })
	if reporter != nil {
		kept.Go(func() { eventsErr = reporter.Run(keeping) })
	}
	err = s.Serve(ctx, reviews, plain)
	end()
	kept.Wait()
	return errors.Join(err, keepErr, eventsErr)
}

// certificate gets the first certificate and returns the function that renews it.
func (f *controllerFlags) certificate(ctx context.Context, s *webhook.Server,
	cluster *webhook.Kubernetes) (keeper, error) {
	if f.cert != "" {
		files := &certificate.Files{Cert: f.cert, Key: f.key, Log: s.Log}
		if err := files.Load(); err != nil {
			if errors.Is(err, os.ErrNotExist) {
				return nil, cli.UsageError{Err: err}
			}
			return nil, err
		}
		s.Certificate = files.Certificate
		s.Seen(nil)
		return files.Run, nil
	}
	service := f.name + "." + f.namespace
	names := []string{service + ".svc", service, service + ".svc.cluster.local"}
	own := &webhook.Own{Cluster: cluster, Log: s.Log, Names: names}
	s.Certificate = own.Certificate
	looking, stop := cli.SignalContext(ctx)
	defer stop()
	looking, cancel := context.WithTimeout(looking, 30*time.Second)
	defer cancel()
	if err := own.Look(looking, time.Now()); err != nil {
		return nil, err
	}
	s.Seen(nil)
	return own.Run, nil
}

func open(address, flag string) (net.Listener, error) {
	ln, err := listen.Open("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%s %s (must be host:port): %w", flag, address, err)
	}
	return ln, nil
}
