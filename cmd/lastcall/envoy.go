package main

import (
	"cmp"
	"log/slog"
	"net"
	"strconv"

	"github.com/spf13/pflag"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
	"github.com/lastcall-dev/lastcall/internal/sidecar/envoy"
	"github.com/lastcall-dev/lastcall/internal/sidecar/meshconfig"
	"github.com/lastcall-dev/lastcall/internal/sidecar/pipe"
)

// envoyFlags select and configure a real Envoy as the data plane.
type envoyFlags struct {
	o        envoy.Options
	proxy    string
	leaveOut []uint
}

func (f *envoyFlags) register(flags *pflag.FlagSet) {
	cli.ChoiceFlag(flags, &f.proxy, "proxy", "pipe", []string{"pipe", "envoy"}, "data plane: pipe (embedded) or envoy")
	flags.StringVar(&f.o.Path, "envoy-path", "envoy", "`program` to start as Envoy")
	flags.StringVar(&f.o.Config, "envoy-config", "", "Envoy's configuration `file` (default: generated from --inbound)")
	flags.StringArrayVar(&f.o.Args, "envoy-arg", nil, "additional `argument` for Envoy; may be repeated")
	cli.ChoiceFlag(flags, &f.o.LogLevel, "envoy-log-level", "warning",
		[]string{"trace", "debug", "info", "warning", "error", "critical", "off"}, "Envoy's log `level`")
	flags.DurationVar(&f.o.StartTimeout, "envoy-start-timeout", envoy.DefaultStartTimeout,
		"how long an Envoy may take until it serves, both one that is started and one at --admin-address")
	flags.BoolVar(&f.o.FailHealthcheck, "healthcheck-fail", false,
		"make Envoy fail its health checks when the drain begins")
	flags.UintSliceVar(&f.leaveOut, "ignore-port", nil,
		"`port` of an Envoy listener whose connections do not hold the drain; may be repeated")
}

// isEnvoy reports whether the data plane is an Envoy.
func (f *envoyFlags) isEnvoy() bool { return f.proxy == "envoy" }

// options are those of the Envoy to start or, with attach, of the one that runs already and serves its API at admin.
func (f *envoyFlags) options(s *meshconfig.Settings, inbound []pipe.Inbound, admin string, attach bool,
	accessLog string, log *slog.Logger) (*envoy.Options, error) {
	if !attach && f.o.Config == "" && len(inbound) == 0 {
		return nil, usagef("--proxy envoy needs --inbound LISTEN=APP, --envoy-config FILE, or --admin-address of an Envoy that is running")
	}
	o := &f.o
	if o.StartTimeout <= 0 {
		return nil, usagef("--envoy-start-timeout %v: must be positive", o.StartTimeout)
	}
	o.Admin, o.Attach = cmp.Or(admin, net.JoinHostPort("127.0.0.1", strconv.Itoa(s.AdminPort.Value))), attach
	o.DrainTime = s.DrainDuration.Value
	o.Istio, o.Log = s.Mode() != drain.ExitOnZero, log
	if n := s.Concurrency.Value; n != nil {
		o.Concurrency = *n
	}
	for _, in := range inbound {
		if in.TLS != nil || in.MaxConnections != 0 {
			return nil, usagef("--inbound %s: with --proxy envoy, set TLS and limits in --envoy-config", in.Listen)
		}
		protocol := in.Protocol
		if !protocol.IsHTTP() { // of Envoy's filters for databases none ends a connection between transactions
			protocol = pipe.TCP
		}
		o.Bootstrap.Inbound = append(o.Bootstrap.Inbound,
			envoy.Route{Listen: in.Listen, App: in.App, Protocol: protocol.String()})
	}
	var err error
	if o.LeaveOut, err = ports("ignore-port", f.leaveOut); err != nil {
		return nil, err
	}
	switch accessLog {
	case "", "off":
	case "-":
		o.Bootstrap.AccessLog = "/dev/stdout"
	default:
		o.Bootstrap.AccessLog = accessLog
	}
	return o, nil
}
