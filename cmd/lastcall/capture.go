package main

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lastcall-dev/lastcall/internal/sidecar/capture"
	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
	"github.com/lastcall-dev/lastcall/internal/sidecar/istio"
	"github.com/lastcall-dev/lastcall/internal/sidecar/pipe"
)

const captureHelp = `Redirect a pod's TCP traffic to the agent: inbound connections to :15006 and, if
--include-outbound-ranges names any, the app's outbound connections to :15001. Made for an init container with the
capability NET_ADMIN, or for the sidecar's own start. It needs neither iptables nor nft: it configures the kernel's
nf_tables directly, for IPv4 and IPv6.

It never captures the agent's own connections (user or group 1337), loopback traffic, and connections to the ports
15000, 15001, 15004, 15006, 15020, 15021, 15053 and 15090 and to the agent's status and admin port. Exclusions override
inclusions.

A second run replaces the rules of the first one atomically; a run that fails changes nothing. Connections that are
already open continue without it. Outside a pod it would capture the whole machine, and needs
--whole-machine.

With -- COMMAND it then becomes this command, and first gives up every right for good: no capability in any set, and
no_new_privs. A sidecar can so set its own rules: lastcall capture -- /lastcall agent --capture, run as user and group
1337, with the capabilities NET_ADMIN and SETPCAP.

The flags of istio-init are accepted too, long and short, and the command is also called istio-iptables.`

func captureCommand() *cobra.Command {
	var f captureSettings
	cmd := &cobra.Command{
		Use:     "capture [flags] [-- COMMAND [ARG…]]",
		Aliases: []string{"istio-iptables"},

		DisableFlagsInUseLine: true, // flags come before the command
		Short:                 "Redirect a pod's traffic to the agent: in an init container, or before COMMAND",
		Long:                  captureHelp,
		Example:               "  lastcall capture\n  lastcall capture --exclude-inbound-ports 9100 --dry-run\n  lastcall capture -- /lastcall agent --capture",
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.ArgsLenAtDash() == 0 {
				return nil
			}
			return cli.NoArgs(cmd, args)
		},
		RunE: f.run,
	}
	f.register(cmd.Flags())
	cli.Common(cmd, "include-inbound-ports", "exclude-inbound-ports", "include-outbound-ports",
		"exclude-outbound-ports", "exclude-outbound-ranges", "annotations", "dry-run")
	return cmd
}

// captureSettings are the flags of lastcall capture.
type captureSettings struct {
	agent  settingsFlags
	dryRun bool
	undo   bool
	all    bool
}

// noEffect are flags that Istio's injection template passes to istio-init and that have no effect here.
var noEffect = []string{"log_output_level", "log_as_json", "force-apply", "native-nftables"}

func (f *captureSettings) register(flags *pflag.FlagSet) {
	istio := map[string]string{}
	for _, s := range capture.Settings {
		flags.StringP(s.Flag, s.Short, s.Default, s.Help)
		if len(s.Annotations) > 0 {
			flags.Lookup(s.Flag).Usage += "; annotation " + s.Annotations[0]
		}
		if s.Istio != "" {
			istio[s.Istio] = s.Flag
		}
	}
	flags.BoolVarP(&f.dryRun, "dry-run", "n", false, "print the rules in nft's syntax; change nothing")
	flags.BoolVar(&f.undo, "undo", false, "remove the rules, if there are any")
	flags.BoolVar(&f.all, "whole-machine", false, "capture also outside a pod")
	f.agent.registerStatusPort(flags)
	f.agent.registerSources(flags)
	for _, name := range noEffect {
		flags.String(name, "", "no effect")
		flags.Lookup(name).Hidden = true
		flags.Lookup(name).NoOptDefVal = "true"
	}
	flags.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if ours, ok := istio[name]; ok {
			name = ours
		}
		return pflag.NormalizedName(name)
	})
}

func (f *captureSettings) run(cmd *cobra.Command, command []string) error {
	program := ""
	if len(command) > 0 {
		if f.undo || f.dryRun {
			return usagef("--undo and --dry-run change nothing for a COMMAND: leave it out")
		}
		var err error
		if program, err = exec.LookPath(command[0]); err != nil {
			return usage(err)
		}
	}
	if f.undo {
		if f.dryRun {
			return capture.DryRun(cmd.OutOrStdout(), capture.Config{Off: true})
		}
		return capture.Remove()
	}
	config, err := f.resolve(cmd.Flags())
	if err != nil {
		return usage(err)
	}
	if f.dryRun {
		return capture.DryRun(cmd.OutOrStdout(), config)
	}
	config.WholeMachine = f.all
	if len(command) > 0 {
		return capture.Become(config, program, command)
	}
	return capture.Install(config)
}

// resolve merges the flags, the pod's annotations and the agent's own ports.
func (f *captureSettings) resolve(flags *pflag.FlagSet) (capture.Config, error) {
	agent, err := f.agent.resolve()
	if err != nil {
		return capture.Config{}, err
	}
	if agent.Annotations == nil && flags.Changed("annotations") {
		fmt.Fprintf(os.Stderr, "lastcall: --annotations %s: no such file; continuing without annotations\n",
			f.agent.annotations)
	}
	in := capture.Input{
		Flags:       map[string]string{},
		Annotations: agent.Annotations,
		OwnPorts:    []uint16{uint16(agent.StatusPort.Value), uint16(agent.AdminPort.Value)},
	}
	for _, s := range capture.Settings {
		if flags.Changed(s.Flag) {
			in.Flags[s.Flag] = flags.Lookup(s.Flag).Value.String()
		}
	}
	return capture.Resolve(in)
}

// The ports to which lastcall capture redirects a pod's traffic.
var (
	capturedInbound  = fmt.Sprintf(":%d", istio.InboundPort)
	capturedOutbound = fmt.Sprintf(":%d", istio.OutboundPort)
)

// captureFlags are for an agent behind lastcall capture.
type captureFlags struct {
	on       bool
	in, out  string
	protocol string
	ignore   []uint
}

func (f *captureFlags) register(flags *pflag.FlagSet) {
	flags.BoolVar(&f.on, "capture", false, "carry the traffic that lastcall capture redirects: "+
		"the same as --inbound-captured "+capturedInbound+" --outbound "+capturedOutbound)
	flags.StringVar(&f.in, "inbound-captured", "", "`address` that receives captured inbound connections; they are carried to their original port")
	cli.ChoiceFlag(flags, &f.protocol, "inbound-captured-protocol", "auto", []string{"auto", "http", "tcp"},
		"protocol of captured inbound connections")
	flags.StringVar(&f.out, "outbound", "",
		"`address` that receives captured outbound connections; "+
			"they are carried to their original destination until the app has ended")
	flags.UintSliceVar(&f.ignore, "ignore-inbound-port", nil,
		"`port` of the app whose connections never hold the drain (probes, scrapes); may be repeated")
}

// inbound is the listener for captured connections, nil without one. It fills in the addresses of --capture.
func (f *captureFlags) inbound() ([]pipe.Inbound, error) {
	if f.on && os.Geteuid() != istio.ProxyID && os.Getegid() != istio.ProxyID {
		return nil, usagef("--capture: user %d, group %d is itself captured, so that connections would loop: "+
			"run the agent as user or group %d or, if lastcall capture excludes another one (--proxy-uid), "+
			"use --inbound-captured %s --outbound %s",
			os.Geteuid(), os.Getegid(), istio.ProxyID, capturedInbound, capturedOutbound)
	}
	if f.on {
		f.in, f.out = cmp.Or(f.in, capturedInbound), cmp.Or(f.out, capturedOutbound)
	}
	if f.in == "" {
		return nil, nil
	}
	protocol, err := parseProtocol(f.protocol)
	if err != nil {
		return nil, usagef("--inbound-captured-protocol: %w", err)
	}
	ignore, err := ports("ignore-inbound-port", f.ignore)
	return []pipe.Inbound{{Listen: f.in, Protocol: protocol, Ignore: ignore}}, err
}

// ports checks the values of a flag.
func ports(flag string, values []uint) (out []uint16, err error) {
	for _, port := range values {
		if port < 1 || port > 65535 {
			return nil, usagef("--%s %d: must be 1 to 65535", flag, port)
		}
		out = append(out, uint16(port))
	}
	return out, nil
}
