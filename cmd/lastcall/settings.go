package main

import (
	"log/slog"
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
	"github.com/lastcall-dev/lastcall/internal/sidecar/meshconfig"
	"github.com/lastcall-dev/lastcall/internal/sidecar/pipe"
	"github.com/lastcall-dev/lastcall/internal/timers"
)

// settingsFlags are the sources of the configuration, and the flags that override variables and ProxyConfig fields.
type settingsFlags struct {
	statusPort  int
	meshConfig  string
	annotations string
	texts       map[string]*cli.Text // by flag
	flags       *pflag.FlagSet
}

// registerSources registers the flags of all commands that read the configuration.
func (f *settingsFlags) registerSources(flags *pflag.FlagSet) {
	f.flags = flags
	flags.StringVar(&f.meshConfig, "mesh-config", meshconfig.DefaultMeshFile, "`file` with Istio's MeshConfig")
	flags.StringVar(&f.annotations, "annotations", meshconfig.DefaultAnnotationsFile,
		"`file` with the pod's annotations (downward API)")
}

func (f *settingsFlags) registerStatusPort(flags *pflag.FlagSet) {
	flags.IntVar(&f.statusPort, "status-port", 0, "`port` of the status server (default 15020, or ProxyConfig's statusPort)")
}

// registerGroup registers the flags of one group of the table of settings.
func (f *settingsFlags) registerGroup(flags *pflag.FlagSet, group string) {
	for _, s := range meshconfig.Table() {
		if s.Group == group && s.Flag != "" && !s.ContainerOnly {
			f.registerSetting(flags, s)
		}
	}
}

func (f *settingsFlags) registerSetting(flags *pflag.FlagSet, s meshconfig.Setting) {
	text := &cli.Text{Kind: s.Type, Known: s.Values, Preset: s.Default, IsBool: s.Type == "bool"}
	if s.Name == timers.GracePeriod {
		text.Preset += "s"
	}
	cli.TextFlag(flags, text, s.Flag, s.Usage)
	if f.texts == nil {
		f.texts = map[string]*cli.Text{}
	}
	f.texts[s.Flag], f.flags = text, flags
}

// register registers all of them.
func (f *settingsFlags) register(flags *pflag.FlagSet) {
	cli.Group(flags, meshconfig.GroupTimers, func(flags *pflag.FlagSet) { f.registerGroup(flags, meshconfig.GroupTimers) })
	cli.Group(flags, meshconfig.GroupEndings, func(flags *pflag.FlagSet) {
		f.registerGroup(flags,
			meshconfig.GroupEndings)
	})
	cli.Group(flags, "Configuration", func(flags *pflag.FlagSet) {
		f.registerGroup(flags, meshconfig.GroupIstio)
		f.registerSources(flags)
	})
	f.flags = flags
}

func (f *settingsFlags) resolve() (*meshconfig.Settings, error) {
	return meshconfig.Resolve(meshconfig.Input{
		MeshFile:        f.meshConfig,
		AnnotationsFile: f.annotations,
		Env:             os.Environ(),
		Flags:           f.given(),
	})
}

// apply resolves the settings, logs their warnings, and sets the process up for them.
func (f *settingsFlags) apply(log *slog.Logger) (*meshconfig.Settings, error) {
	settings, err := f.resolve()
	if err != nil {
		return nil, usage(err)
	}
	for _, w := range settings.Warnings {
		log.Warn(w.String())
	}
	for _, c := range settings.Drain().Contradictions() {
		log.Warn(c)
	}
	if n := settings.Concurrency.Value; n != nil && *n > 0 {
		runtime.GOMAXPROCS(*n)
	}
	return settings, nil
}

// given are the flags on the command line that override settings.
func (f *settingsFlags) given() map[string]meshconfig.Flag {
	given := map[string]meshconfig.Flag{}
	if f.statusPort != 0 {
		given["statusPort"] = meshconfig.Flag{Name: "--status-port", Text: strconv.Itoa(f.statusPort)}
	}
	for _, s := range meshconfig.Table() {
		text := f.texts[s.Flag]
		if text == nil || !f.flags.Changed(s.Flag) {
			continue
		}
		given[s.Name] = meshconfig.Flag{Name: "--" + s.Flag, Text: text.Text}
	}
	return given
}

// precedence explains the sources of the configuration.
const precedence = "A flag overrides the container's environment, which overrides proxyMetadata and the fields of the pod " +
	"annotation proxy.istio.io/config, then PROXY_CONFIG, then the mesh config file, then the default. " +
	"`lastcall config` prints the values in force and where each comes from."

// environment lists the variables of a command for its help.
func environment(cmd *cobra.Command) func() (string, []cli.Variable) {
	return func() (string, []cli.Variable) {
		var out []cli.Variable
		for _, s := range meshconfig.Table() {
			if s.Field || s.ContainerOnly && s.Flag != "" && cmd.Flags().Lookup(s.Flag) == nil {
				continue
			}
			v := cli.Variable{Group: s.Group, Name: s.Name, Default: s.Default, Usage: s.Usage}
			if cmd.Flags().Lookup(s.Flag) != nil {
				v.Flag = s.Flag
			}
			out = append(out, v)
		}
		return strings.ReplaceAll(precedence, "`", ""), out
	}
}

// endings is how the pipe ends long-lived connections. docs/endings.md describes what clients see.
func endings(s *meshconfig.Settings) pipe.Endings {
	when := map[string]pipe.LongLived{"wait": pipe.Wait, "close": pipe.CloseEarly}
	d := s.Drain()
	return pipe.Endings{
		Spread: s.Spread.Value, WebSockets: when[s.WebSocket.Value], WebSocketCode: s.WebSocketClose.Value,
		EventStreams: when[s.EventStreams.Value], EndlessTypes: s.EndlessTypes.Value,
		AppFinishes: s.App.Value == drain.AppFinishes,
		EarlyTime:   d.LastCallAfter() - d.DrainCap(),
	}
}

func configCommand() *cobra.Command {
	var f settingsFlags
	var format cli.Format
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print the configuration and the source of each value",
		Long:  "Print the configuration that lastcall agent and lastcall run use with these flags, this environment and these files, and the source of each value.",
		Args:  cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			settings, err := f.resolve()
			if err != nil {
				return usage(err)
			}
			if format == cli.JSON {
				b, err := settings.MarshalJSON()
				if err != nil {
					return err
				}
				_, err = cmd.OutOrStdout().Write(append(b, '\n'))
				return err
			}
			return settings.WriteText(cmd.OutOrStdout())
		},
	}
	f.register(cmd.Flags())
	f.registerStatusPort(cmd.Flags())
	cli.OutputFlag(cmd.Flags(), &format, "output format")
	cli.Environment(cmd, environment(cmd))
	return cmd
}
