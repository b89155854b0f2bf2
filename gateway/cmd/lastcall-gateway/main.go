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
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/gateway"
	"github.com/lastcall-dev/lastcall/gateway/ingress"
	"github.com/lastcall-dev/lastcall/internal/certificate"
	"github.com/lastcall-dev/lastcall/internal/cli"
	"github.com/lastcall-dev/lastcall/internal/logs"
	"github.com/lastcall-dev/lastcall/internal/signals"
	"github.com/lastcall-dev/lastcall/internal/timers"
)

const help = `An ingress gateway: HTTP/1.1 and HTTP/2, in clear and over TLS, gRPC, WebSockets;
round robin over endpoints that it speaks HTTP/1.1 to, or HTTP/2 in clear where their
Service's port (appProtocol kubernetes.io/h2c, name grpc) or --protocol says so.

With --kubernetes it follows the cluster: Ingresses of its class, the EndpointSlices
of their Services, TLS Secrets. With --service as well it stands in front of one Service
alone. With --endpoints it follows a file with one host:port on a line; # begins a
comment; the file may be rewritten or replaced at any time.

At SIGTERM every response says goodbye at once (HTTP/2: GOAWAY), new connections are
still accepted until the load balancer has learnt, which --load-balancer knows about,
what is in flight is finished, and the listener is closed last. A second SIGTERM
makes the last call at once. A report says what happened.`

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
		Short: "An ingress gateway that is drained as a pod is, for clusters and rehearsals",
		Long:  help,
		Args:  cli.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.http, "http", "", "`address` for HTTP, host:port (default :8080 with --kubernetes, else 127.0.0.1:8000 unless --https is given)")
	flags.StringVar(&f.https, "https", "", "`address` for HTTPS, host:port (default :8443 with --kubernetes and Ingresses)")
	flags.StringVar(&f.admin, "admin", "", "`address` for GET /ready, /healthz and /metrics (default :15021 with --kubernetes)")
	flags.StringVar(&f.endpoints, "endpoints", "", "`file` with one host:port on a line; watched")
	flags.StringVar(&f.protocol, "protocol", gateway.HTTP1.String(), "what the endpoints of --endpoints speak: http1, or h2c for HTTP/2 with prior knowledge and gRPC")
	flags.StringVar(&f.cert, "tls-cert", "", "PEM `file` of the certificate for names that nothing else has one for")
	flags.StringVar(&f.key, "tls-key", "", "PEM `file` of that certificate's key")
	flags.IntVar(&f.trustedHops, "trusted-hops", 0, "how many proxies in front of the gateway say in headers where a request comes from; with 0, X-Forwarded-Host, X-Real-IP, Forwarded, X-Envoy-* and the like are removed")
	flags.IntVar(&f.maxConnections, "max-connections", 0, "how many connections of clients there may be; more are closed when they come (default one for each 64 KiB of the container's memory limit, else no limit)")
	flags.IntVar(&f.maxPerEndpoint, "max-connections-per-endpoint", gateway.DefaultMaxPerEndpoint, "how many connections one endpoint gets; requests that would need another get 503 UO")
	flags.StringVar(&f.accessLog, "access-log", "", "`file` for one line a request, - for standard output (default none)")
	flags.StringVar(&f.logFormat, "log-format", "text", "text or json")
	flags.StringVar(&f.termLog, "termination-log", defaultTerminationLog(), "`file` for the container's termination message")
	flags.BoolVar(&f.debug, "debug", false, "log what happens to each request")
	f.cluster.register(flags)
	f.termination.register(flags)
	cmd.AddCommand(cli.VersionCommand(cli.Version(version)))
	return cmd
}

// defaultTerminationLog is Kubernetes' terminationMessagePath, where the platform has mounted
// it.
func defaultTerminationLog() string {
	const path = "/dev/termination-log"
	if _, err := os.Stat(path); err == nil {
		return path
	}
	return ""
}

func (f *gatewayFlags) run(cmd *cobra.Command) error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50) // what clients send turns into garbage: memory counts more than the collector's time
	}
	if err := f.complete(cmd.Flags()); err != nil {
		return cli.UsageError{Err: err}
	}
	protocol, err := gateway.ParseProtocol(f.protocol)
	if err != nil {
		return cli.UsageError{Err: fmt.Errorf("--protocol: %w", err)}
	}
	log, written, err := f.log(cmd)
	if err != nil {
		return err
	}
	o := gateway.RunOptions{HTTP: f.http, HTTPS: f.https, Admin: f.admin, TerminationLog: f.termLog, MaxConnections: f.maxConnections}
	if !cmd.Flags().Changed("max-connections") {
		o.MaxConnections = connectionsFor(memoryLimit())
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

// keep reads the files anew when they change, until it is told to stop.
func keep(ctx context.Context, files *certificate.Files) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var keeping sync.WaitGroup
	keeping.Go(func() {
		if err := files.Run(ctx, func(error) {}); err != nil {
			files.Log.Error("the certificate is not read anew when it changes", "error", err)
		}
	})
	return func() { cancel(); keeping.Wait() }
}

// verdict is nil for every end that was asked for.
func verdict(r drain.Report, err error) error {
	if err == nil && r.Verdict == drain.Crashed {
		return cli.ErrReported
	}
	return err
}

// complete checks which flags go together, and fills in what depends on others.
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
		return errors.New("--protocol is for --endpoints: with --kubernetes the Service's port says it (appProtocol)")
	case f.endpoints != "" && f.cluster.kubernetes:
		return errors.New("--kubernetes and --endpoints: use only one of them")
	case (f.cert == "") != (f.key == ""):
		return errors.New("--tls-cert and --tls-key belong together: give both or none")
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
		return errors.New("--http and --https are both empty: at least one address is needed")
	case f.https == "" && (f.cert != "" || f.cluster.defaultSecret != ""):
		return errors.New("a certificate is given, but no --https to show it at")
	case f.maxConnections < 0:
		return fmt.Errorf("--max-connections is %d: must not be negative", f.maxConnections)
	case f.https != "" && f.cert == "" && (!f.cluster.kubernetes || f.cluster.service != "" && f.cluster.defaultSecret == ""):
		return errors.New("--https needs --tls-cert and --tls-key, or with --kubernetes --default-tls-secret")
	}
	return nil
}

func (f *gatewayFlags) log(cmd *cobra.Command) (*slog.Logger, *logs.Writer, error) {
	level := slog.LevelInfo
	if f.debug {
		level = slog.LevelDebug
	}
	return cli.Log(cmd, f.logFormat, level)
}

// openAccessLog opens what no request waits for; nil for none. done ends it.
func openAccessLog(name string, stdout io.Writer, log *slog.Logger) (access *logs.Writer, done func(), err error) {
	to := stdout
	switch name {
	case "":
		return nil, func() {}, nil
	case "-":
	default:
		if to, err = logs.OpenFile(name); err != nil {
			return nil, nil, cli.UsageError{Err: fmt.Errorf("--access-log takes a file or -: %w", err)}
		}
	}
	access = logs.New(to, accessLogBound)
	var throttle logs.Throttle
	access.OnLoss(func(lost uint64, err error) {
		throttle.Warn(log, time.Minute, "the access log is not written as fast as requests end; lines are lost and counted", "lines", lost, "error", err)
	})
	return access, access.Close, nil
}

// accessLogBound is how much of the access log may wait for its reader, bytes: some
// 10,000 lines.
const accessLogBound = 4 << 20

// terminationFlags say how a gateway ends.
type terminationFlags struct {
	loadBalancer                                              string
	grace, timeout, minimum, quiet, idle, failure, deregister time.Duration
	exitAt                                                    int
}

func (f *terminationFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.loadBalancer, "load-balancer", "", "what stands in front, and so how late it learns: `NAME`, nlb, alb, gke, cloudflare, adaptive or none (default adaptive with --kubernetes, else none)")
	flags.DurationVar(&f.grace, "grace", 0, "the pod's terminationGracePeriodSeconds (default of TERMINATION_GRACE_PERIOD_SECONDS, else 30s)")
	flags.DurationVar(&f.timeout, "drain-timeout", 0, "when, after SIGTERM, what is left gets the last call (default 2s before the end of the grace period)")
	flags.DurationVar(&f.minimum, "minimum-drain", 0, "how long new connections are accepted at least (default of --load-balancer)")
	flags.DurationVar(&f.quiet, "quiet-time", 0, "how long no new connection may have come before the listener is closed; extends --minimum-drain (default of --load-balancer)")
	flags.DurationVar(&f.idle, "idle-grace", 0, "how long a kept-alive connection may be idle, after that, before it is closed (default of --load-balancer)")
	flags.IntVar(&f.exitAt, "exit-at-connections", 0, "how many connections with a request in flight do not hold the exit; they get the last call")
	flags.DurationVar(&f.failure, "health-check-failure-delay", 0, "when, after SIGTERM, /ready begins to fail; 0s: at once (default: not before the listener is closed)")
	flags.DurationVar(&f.deregister, "deregistration-delay", gateway.DefaultDeregistrationDelay, "with --load-balancer alb: the target group's deregistration_delay.timeout_seconds")
}

// termination is what the flags come to, the preset first; an error says what contradicts
// itself.
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
		return t, errors.New("--deregistration-delay is for --load-balancer alb, and must not be negative")
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
		return t, fmt.Errorf("--health-check-failure-delay is %v: must not be negative", f.failure)
	}
	if flags.Changed("drain-timeout") && f.timeout == 0 {
		return t, errors.New("--drain-timeout is 0s: must be positive")
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

// memoryLimit is the container's, bytes; 0 when it has none.
func memoryLimit() int64 {
	text, err := os.ReadFile("/sys/fs/cgroup/memory.max")
	if err != nil {
		return 0
	}
	limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil { // max
		return 0
	}
	return limit
}
