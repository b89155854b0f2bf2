package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
	"github.com/lastcall-dev/lastcall/kube/cmd/internal/kubeflags"
	"github.com/lastcall-dev/lastcall/kube/inject"
	"github.com/lastcall-dev/lastcall/kube/lint"
	"github.com/lastcall-dev/lastcall/kube/lint/report"
)

const lintHelp = `Find settings of manifests with which pods lose requests when they stop.

The command reads files, folders, patterns in quotes and standard input: YAML in any number of documents, JSON, Lists,
and the output of kustomize and Helm. It examines the whole input together: a Service with its pods, a
HorizontalPodAutoscaler with its Deployment, Istio's MeshConfig (IstioOperator, ConfigMap) with all pods. Each pod is
judged by the mesh that it has. docs/lint.md has a page for each rule.

A comment "# lastcall:ignore LC014" at the end of a line, or alone above it, switches a rule off for that line; above
the first line of a document, for the whole document.

Exit code: 0 without findings of the severity of --fail-on, 1 with one, 2 for wrong flags and files that do not exist. A
manifest that is not readable is a finding.`

type lintFlags struct {
	files
	output              cli.Format
	failOn, mesh, istio string
}

func lintCommand() *cobra.Command {
	var f lintFlags
	cmd := &cobra.Command{
		Use:   "lint FILE…",
		Short: "Find settings with which pods lose requests when they stop",
		Long:  lintHelp,
		Example: `  lastcallctl lint deploy/
  helm template . | lastcallctl lint -
  lastcallctl lint deploy/ -o sarif > lint.sarif`,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	flags := cmd.Flags()
	f.files.register(flags)
	kubeflags.MeshConfig(flags, &f.mesh)
	istioSidecarFlag(flags, &f.istio)
	cli.OutputFlag(flags, &f.output, "output format", "sarif")
	cli.ChoiceFlag(flags, &f.failOn, "fail-on", lint.FailOn()[0], lint.FailOn(),
		"least severity that makes the exit code 1")
	return cmd
}

// istioSidecarFlag adds the form of a sidecar that is not in the manifest.
func istioSidecarFlag(flags *pflag.FlagSet, form *string) {
	forms := []string{string(inject.Native), string(inject.Classic)}
	cli.ChoiceFlag(flags, form, "istio-sidecar", forms[0], forms, "form of the sidecar that Istio will inject")
}

func (f *lintFlags) run(cmd *cobra.Command, args []string) error {
	mesh, err := kubeflags.ReadMeshConfig(f.mesh)
	if err != nil {
		return err
	}
	files, err := f.files.read(cmd, args)
	if err != nil {
		return err
	}
	result := lint.Examine(files, lint.Options{Istio: inject.Sidecar(f.istio), MeshConfig: mesh})
	if err := report.Write(cmd.OutOrStdout(), string(f.output), result, cli.Version(version)); err != nil {
		return err
	}
	fmt.Fprintln(cmd.ErrOrStderr(), report.Summary(result))
	for _, note := range result.Notes {
		fmt.Fprintln(cmd.ErrOrStderr(), note)
	}
	if result.Examined == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(),
			"nothing examined: the input has no Pod, Deployment or other workload, no Service, and no configuration of Istio")
	}
	if result.Fails(f.failOn) {
		return cli.ErrReported
	}
	return nil
}
