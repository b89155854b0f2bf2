package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/lastcall-dev/lastcall/internal/cli"
	"github.com/lastcall-dev/lastcall/kube/bugreport"
)

const bugReportHelp = `Collect what is needed to understand a problem into a zip file: versions, the result of lastcallctl check, the webhook's configuration, the controller's logs, and for injected pods their manifests, Events, the sidecar's log, metrics, live connections and the report of the last termination.

No Secret is read, and values of environment variables, arguments and annotations that look secret are replaced. That cannot be perfect: look at the files before you share them.

The sidecar's state needs the permission to create pods/exec; without it, and for everything else that you may not read, errors.txt in the report lists the failure. All look-ups have a deadline, and all files a limit.`

func bugReportCommand() *cobra.Command {
	var f clusterFlags
	var file string
	var pods []string
	var exec bool
	cmd := &cobra.Command{
		Use:     "bug-report",
		Short:   "Collect logs and states into a zip file",
		Long:    bugReportHelp,
		Example: "  lastcallctl bug-report\n  lastcallctl bug-report -n shop --pod web-5d9c7b6f4-x2x8k",
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			clients, config, err := f.connect()
			if err != nil {
				return err
			}
			ctx, stop := cli.SignalContext(cmd.Context())
			defer stop()
			if file == "" {
				file = "lastcall-bug-report-" + time.Now().UTC().Format("20060102-150405") + ".zip"
			}
			out, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
			if err != nil {
				return cli.UsageError{Err: fmt.Errorf("create --file, which must not exist yet: %w", err)}
			}
			o := bugreport.Options{Check: f.options(), Pods: pods, Program: cli.Version(version), Progress: func(step string) {
				fmt.Fprintf(cmd.ErrOrStderr(), "collecting: %s\n", step)
			}}
			if exec {
				o.Exec = bugreport.Exec(config, clients.Core)
			}
			files, problems, err := bugreport.Write(ctx, out, clients, o)
			if err = errors.Join(err, out.Close()); err != nil {
				return errors.Join(err, os.Remove(file))
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %d files, %d could not be collected (errors.txt)\nLook at the files before you share them: logs, paths and addresses may be confidential.\n", file, files, len(problems))
			return err
		},
	}
	cmd.Flags().StringArrayVar(&pods, "pod", nil, "`name` of a pod, or NAMESPACE/NAME; may be repeated (default: the first injected pods)")
	cmd.Flags().StringVarP(&file, "file", "f", "", "zip `file` to write (default lastcall-bug-report-TIME.zip)")
	cmd.Flags().BoolVar(&exec, "exec", true, "run lastcall in the sidecars, for their connections, configuration and metrics")
	f.register(cmd.Flags())
	return cmd
}
