// Lastcall-gateway is the reference gateway: an ingress that drains the way an agent does, for clusters and rehearsals.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/gateway"
	"github.com/lastcall-dev/lastcall/gateway/ingress"
	"github.com/lastcall-dev/lastcall/internal/sidecar/certificate"
	"github.com/lastcall-dev/lastcall/internal/sidecar/cgroup"
	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
	"github.com/lastcall-dev/lastcall/internal/sidecar/logs"
	"github.com/lastcall-dev/lastcall/internal/sidecar/signals"
	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
	"github.com/lastcall-dev/lastcall/internal/timers"
)

const help = `An ingress gateway: HTTP/1.1 and HTTP/2, with and without TLS, gRPC, WebSockets. It balances requests over endpoints by round robin. It speaks HTTP/1.1 to them, or HTTP/2 without TLS if the Service's port (appProtocol kubernetes.io/h2c, name grpc) or --protocol sets it.

With --kubernetes it follows the cluster: Ingresses of its class, the EndpointSlices of their Services, and TLS Secrets; with --service as well, one Service without any Ingress. With --endpoints it follows a file with one host:port on each line; # begins a comment, and the file may be replaced at any time.

At SIGTERM or Ctrl-C every response announces the end of its connection (HTTP/2: GOAWAY). New connections are accepted until the load balancer sends no more, for which --load-balancer sets the timers. Then the listener is closed and the requests in flight are finished. A second signal ends the remaining requests at once.

Exit code: 0 after a drain, 1 when it could not serve, 2 for wrong flags.`

type gatewayFlags struct {
	http, https, admin            string
	endpoints, protocol           string
	cert, key                     string
	accessLog, logFormat, termLog string
	debug                         bool
	trustedHops, maxPerEndpoint   int
	maxConnections                int
	cluster                       clusterFlags
	termination                   terminationFlags
}

// version is set by the build (-ldflags "-X main.version=…").
var version = ""

func main() { os.Exit(cli.Main(command(), cli.Version(version))) }

func command() *cobra.Command {
	var f gatewayFlags
	cmd := &cobra.Command{
		Use:   "lastcall-gateway (--kubernetes | --endpoints FILE)",
		Short: "The reference ingress gateway, which drains as a pod does",
		Long:  help,
		Args:  cli.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	cli.Group(flags, "Listeners", func(flags *pflag.FlagSet) {
		flags.StringVar(&f.http, "http", "", "`address` for HTTP, host:port (default :8080 with --kubernetes, else 127.0.0.1:8000 unless --https is set)")
		flags.StringVar(&f.https, "https", "", "`address` for HTTPS, host:port (default :8443 with --kubernetes and Ingresses)")
		flags.StringVar(&f.admin, "admin", "", "`address` for GET /ready, /healthz and /metrics, host:port (default :15021 with --kubernetes)")
		flags.IntVar(&f.maxConnections, "max-connections", 0, "maximum number of client connections; more are closed (default one for each 64 KiB of the container's memory limit, else no limit)")
		flags.IntVar(&f.trustedHops, "trusted-hops", 0, "number of proxies in front of the gateway whose forwarding headers are trusted; with 0, X-Forwarded-Host, X-Real-IP, Forwarded, X-Envoy-* and similar headers are removed")
	})
	cli.Group(flags, "Endpoints from a file", func(flags *pflag.FlagSet) {
		flags.StringVar(&f.endpoints, "endpoints", "", "`file` with one host:port on each line; reread when it changes")
		cli.ChoiceFlag(flags, &f.protocol, "protocol", gateway.HTTP1.String(), []string{"http1", "h2c"}, "protocol of these endpoints: http1, or h2c for HTTP/2 with prior knowledge and gRPC")
		flags.IntVar(&f.maxPerEndpoint, "max-connections-per-endpoint", gateway.DefaultMaxPerEndpoint, "maximum number of connections to an endpoint, of any source; requests that need another one get 503 UO")
	})
	cli.Group(flags, "Endpoints from a cluster", f.cluster.register)
	cli.Group(flags, "TLS", func(flags *pflag.FlagSet) {
		flags.StringVar(&f.cert, "tls-cert", "", "PEM `file` with the certificate for host names without one of their own")
		flags.StringVar(&f.key, "tls-key", "", "PEM `file` with its key")
		f.cluster.registerTLS(flags)
	})
	cli.Group(flags, "Drain timers", f.termination.register)
	cli.Group(flags, "Observability", func(flags *pflag.FlagSet) {
		cli.LogFormatFlag(flags, &f.logFormat)
		flags.BoolVar(&f.debug, "debug", false, "log every request's routing")
		flags.StringVar(&f.accessLog, "access-log", "", "`file` for one line per request, - for standard output (default none)")
		flags.StringVar(&f.termLog, "termination-log", cli.DefaultTerminationLog(), "`file` for the container's termination message")
	})
	cli.Environment(cmd, func() (string, []cli.Variable) {
		return "A flag overrides the environment.", []cli.Variable{
			{Group: "Drain timers", Name: timers.GracePeriod, Default: "30", Flag: "grace"},
			{Group: "Runtime", Name: "GOGC", Default: "50", Usage: "garbage collector target of the Go runtime"},
		}
	})
	cmd.AddCommand(cli.VersionCommand(cli.Version(version)))
	return cmd
}

func (f *gatewayFlags) run(cmd *cobra.Command) error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50) // memory matters more than the collector's time
	}
	if err := f.complete(cmd.Flags()); err != nil {
		return cli.UsageError{Err: err}
	}
	protocol, err := gateway.ParseProtocol(f.protocol)
	if err != nil {
		return cli.UsageError{Err: fmt.Errorf("--protocol: %w", err)}
	}
	log, written := f.log(cmd)
	o := gateway.RunOptions{HTTP: f.http, HTTPS: f.https, Admin: f.admin, TerminationLog: f.termLog, MaxConnections: f.maxConnections, Terminal: terminal.On(written, os.Stderr)}
	if !cmd.Flags().Changed("max-connections") {
		o.MaxConnections = connectionsFor(cgroup.Memory())
	}
	if o.Termination, err = f.termination.termination(cmd.Flags(), f.cluster.kubernetes, log); err != nil {
		return cli.UsageError{Err: err}
	}
	var fallback gateway.Fallback
	if f.cert != "" {
		files := &certificate.Files{Cert: f.cert, Key: f.key, Log: log}
		if err := files.Load(); err != nil {
			return cli.UsageError{Err: err}
		}
		fallback = files.Certificate
		defer keep(cmd.Context(), files)()
	}
	if f.https != "" {
		o.Certificates = new(gateway.Certificates)
		o.Certificates.Set(nil, fallback)
	}
	access, done, err := openAccessLog(f.accessLog, cmd.OutOrStdout(), log)
	if err != nil {
		return err
	}
	defer done()
	options := gateway.Options{Log: log, TrustedHops: f.trustedHops, MaxPerEndpoint: f.maxPerEndpoint, Metrics: []prometheus.Collector{written.Metric("own")}}
	if access != nil {
		options.AccessLog, options.Metrics = access, append(options.Metrics, access.Metric("access"))
	}
	g, err := gateway.New(options)
	if err != nil {
		return cli.UsageError{Err: err}
	}
	if f.endpoints != "" {
		o.Source, err = gateway.FollowFile(g, f.endpoints, protocol)
	} else {
		o.Source, err = f.cluster.source(ingress.Options{Gateway: g, Certificates: o.Certificates, Fallback: fallback, Log: log})
	}
	if err != nil {
		return cli.UsageError{Err: err}
	}
	received, stop := signals.Receive(signals.Options{Log: log})
	o.Signals = received.Stop
	defer stop()
	return verdict(g.Run(context.WithoutCancel(cmd.Context()), o))
}

// keep rereads the files when they change, until stop is called.
func keep(ctx context.Context, files *certificate.Files) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var keeping sync.WaitGroup
	keeping.Go(func() {
		if err := files.Run(ctx, func(error) {}); err != nil {
			files.Log.Error("certificate files are no longer watched", "error", err)
		}
	})
	return func() { cancel(); keeping.Wait() }
}

// verdict is nil for every requested end.
func verdict(r drain.Report, err error) error {
	if err == nil && r.Verdict == drain.Crashed {
		return cli.ErrReported
	}
	return err
}

// complete checks the combination of flags, and sets defaults that depend on other flags.
func (f *gatewayFlags) complete(flags *pflag.FlagSet) error {
	preset := func(name string, value *string, otherwise string) {
		if !flags.Changed(name) {
			*value = otherwise
		}
	}
	switch {
	case f.endpoints == "" && !f.cluster.kubernetes:
		return errors.New("missing --kubernetes or --endpoints FILE, a file with one host:port on each line")
	case f.endpoints == "" && flags.Changed("protocol"):
		return errors.New("--protocol needs --endpoints: with --kubernetes the Service's port selects the protocol (appProtocol)")
	case f.endpoints != "" && f.cluster.kubernetes:
		return errors.New("use only one of --kubernetes and --endpoints")
	case (f.cert == "") != (f.key == ""):
		return errors.New("use --tls-cert and --tls-key together")
	}
	if f.cluster.kubernetes {
		preset("http", &f.http, ":8080")
		preset("admin", &f.admin, ":15021")
		if f.cluster.service == "" || f.cert != "" || f.cluster.defaultSecret != "" {
			preset("https", &f.https, ":8443")
		}
	} else if f.https == "" {
		preset("http", &f.http, "127.0.0.1:8000")
	}
	if err := f.cluster.check(flags); err != nil {
		return err
	}
	switch {
	case f.http == "" && f.https == "":
		return errors.New("--http and --https are both empty: set at least one address")
	case f.https == "" && (f.cert != "" || f.cluster.defaultSecret != ""):
		return errors.New("--tls-cert and --default-tls-secret need --https")
	case f.maxConnections < 0:
		return fmt.Errorf("--max-connections %d: must not be negative", f.maxConnections)
	case f.https != "" && f.cert == "" && (!f.cluster.kubernetes || f.cluster.service != "" && f.cluster.defaultSecret == ""):
		return errors.New("--https needs --tls-cert and --tls-key, or with --kubernetes --default-tls-secret")
	}
	return nil
}

func (f *gatewayFlags) log(cmd *cobra.Command) (*slog.Logger, *logs.Writer) {
	level := slog.LevelInfo
	if f.debug {
		level = slog.LevelDebug
	}
	return cli.Log(cmd, f.logFormat, level)
}

// openAccessLog opens the access log, for which no request waits; nil for none. done closes it.
func openAccessLog(name string, stdout io.Writer, log *slog.Logger) (access *logs.Writer, done func(), err error) {
	to := stdout
	switch name {
	case "":
		return nil, func() {}, nil
	case "-":
	default:
		if to, err = logs.OpenFile(name); err != nil {
			return nil, nil, cli.UsageError{Err: fmt.Errorf("--access-log must be a file or -: %w", err)}
		}
	}
	access = logs.New(to, accessLogBound)
	var throttle logs.Throttle
	access.OnLoss(func(lost uint64, err error) {
		throttle.Warn(log, time.Minute, "access log too slow; dropping lines", "lines", lost, "error", err)
	})
	return access, access.Close, nil
}

// accessLogBound is the size of the access log's buffer in bytes: some 10,000 lines.
const accessLogBound = 4 << 20

// terminationFlags are the timers of a drain.
type terminationFlags struct {
	loadBalancer                                              string
	grace, timeout, minimum, quiet, idle, failure, deregister time.Duration
	exitAt                                                    int
}

func (f *terminationFlags) register(flags *pflag.FlagSet) {
	cli.ChoiceFlag(flags, &f.loadBalancer, "load-balancer", "", []string{"nlb", "alb", "gke", "cloudflare", "adaptive", "none"}, "load balancer in front, which sets the other timers: `NAME`, one of nlb, alb, gke, cloudflare, adaptive or none (default adaptive with --kubernetes, else none)")
	flags.DurationVar(&f.grace, "grace", 0, "the pod's terminationGracePeriodSeconds (default 30s)")
	flags.DurationVar(&f.timeout, "drain-timeout", 0, "end the remaining requests this long after SIGTERM (default 2s before the end of the grace period)")
	flags.DurationVar(&f.minimum, "minimum-drain", 0, "accept new connections for at least this long (default set by --load-balancer)")
	flags.DurationVar(&f.quiet, "quiet-time", 0, "close the listener once no connection has arrived for this long; extends --minimum-drain (default set by --load-balancer)")
	flags.DurationVar(&f.idle, "idle-grace", 0, "then close a keep-alive connection that has been idle for this long (default set by --load-balancer)")
	flags.IntVar(&f.exitAt, "exit-at-connections", 0, "exit although this many connections have a request in flight, and end those requests")
	flags.DurationVar(&f.failure, "health-check-failure-delay", 0, "fail /ready this long after SIGTERM; 0s: at once (default: when the listener is closed)")
	flags.DurationVar(&f.deregister, "deregistration-delay", gateway.DefaultDeregistrationDelay, "with --load-balancer alb: the target group's deregistration_delay.timeout_seconds")
}

// termination is the load balancer's preset, overridden by the flags. Flags that contradict each other are an error.
func (f *terminationFlags) termination(flags *pflag.FlagSet, cluster bool, log *slog.Logger) (gateway.Termination, error) {
	var t gateway.Termination
	if !flags.Changed("grace") {
		f.grace = drain.DefaultGracePeriod
		if text := os.Getenv(timers.GracePeriod); text != "" {
			var ok bool
			if f.grace, ok = timers.ParseGracePeriod(text); !ok {
				return t, fmt.Errorf("%s is %q: must be %s", timers.GracePeriod, text, timers.GracePeriodFormat)
			}
		}
	}
	name := "none"
	if cluster {
		name = "adaptive"
	}
	name = cmp.Or(f.loadBalancer, name)
	if flags.Changed("deregistration-delay") && (name != "alb" || f.deregister < 0) {
		return t, errors.New("--deregistration-delay needs --load-balancer alb, and must not be negative")
	}
	preset, err := gateway.PresetNamed(name, f.deregister)
	if err != nil {
		return t, fmt.Errorf("--load-balancer: %w", err)
	}
	t = preset.Termination(f.grace)
	t.DrainTimeout, t.ExitAt = f.timeout, f.exitAt
	for _, d := range []struct {
		flag string
		from time.Duration
		to   *time.Duration
	}{
		{"minimum-drain", f.minimum, &t.MinDrain}, {"quiet-time", f.quiet, &t.QuietTime},
		{"idle-grace", f.idle, &t.IdleGrace}, {"health-check-failure-delay", f.failure, &t.FailReadinessAfter},
	} {
		if flags.Changed(d.flag) {
			*d.to = d.from
		}
	}
	if flags.Changed("health-check-failure-delay") && f.failure < 0 {
		return t, fmt.Errorf("--health-check-failure-delay %v: must not be negative", f.failure)
	}
	if flags.Changed("drain-timeout") && f.timeout == 0 {
		return t, errors.New("--drain-timeout 0s: must be positive")
	}
	if _, err := t.Config(); err != nil {
		if !flags.Changed("minimum-drain") && t.MinDrain > 0 {
			err = fmt.Errorf("%w; --minimum-drain is --load-balancer %s's: %s", err, preset.Name, preset.Reason)
		}
		return t, err
	}
	log.Info("termination", "load_balancer", preset.Name, "grace", t.GracePeriod, "min_drain", t.MinDrain, "quiet_time", t.QuietTime)
	return t, nil
}

// connectionsFor is how many connections fit into memory, at about what an idle one with TLS takes; 0 is no limit.
func connectionsFor(memory int64) int { return int(memory / (64 << 10)) }
