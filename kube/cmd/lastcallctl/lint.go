package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lastcall-dev/lastcall/internal/printable"
	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
	"github.com/lastcall-dev/lastcall/kube/cmd/internal/kubeflags"
	"github.com/lastcall-dev/lastcall/kube/inject"
	"github.com/lastcall-dev/lastcall/kube/lint"
	"github.com/lastcall-dev/lastcall/rehearsal/console"
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
	if err := writeFindings(cmd.OutOrStdout(), f.output, result); err != nil {
		return err
	}
	fmt.Fprintln(cmd.ErrOrStderr(), summary(result))
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

// writeFindings writes the findings of lint for people, programs or code hosts.
func writeFindings(out io.Writer, format cli.Format, r *lint.Result) error {
	switch format {
	case cli.JSON:
		return asJSON(out, append([]lint.Found{}, r.Findings...))
	case "sarif":
		return asJSON(out, sarif(r))
	}
	file, isTerminal := onTerminal(out)
	for _, f := range r.Findings {
		text := terminal.Printable(f.String()) // one line, for grep
		if isTerminal {
			text = finding(f, console.StyleFor(file))
		}
		if _, err := fmt.Fprintln(out, text); err != nil {
			return err
		}
	}
	return nil
}

// finding is one for a person: its place and rule, then the text, in lines that fit the terminal.
func finding(f lint.Found, s console.Style) string {
	paint := s.Bold
	if f.Severity == lint.Error {
		paint = s.Bad
	}
	head := terminal.Printable(f.Place()) + ": " + paint(fmt.Sprint(f.Severity, " ", f.ID))
	return head + "\n" + s.Wrap("  ", f.Message())
}

func asJSON(out io.Writer, value any) error {
	encoder := json.NewEncoder(printable.JSONWriter(out))
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

// summary is one line about the whole examination.
func summary(r *lint.Result) string {
	count := map[lint.Severity]int{}
	for _, f := range r.Findings {
		count[f.Severity]++
	}
	text := fmt.Sprintf("%s, %s, %d examined: %s, %s",
		terminal.Count(r.Files, "file"), terminal.Count(r.Objects, "object"), r.Examined,
		terminal.Count(count[lint.Error], "error"), terminal.Count(count[lint.Warning], "warning"))
	if r.Ignored > 0 {
		text += fmt.Sprintf(", %d ignored", r.Ignored)
	}
	if r.Templates > 0 {
		text += fmt.Sprintf("; %s not examined: render them first (helm template CHART | lastcallctl lint -)",
			terminal.Count(r.Templates, "template"))
	}
	return text
}

type object = map[string]any

// sarif is the findings in the part of SARIF 2.1.0 that code hosts show.
func sarif(r *lint.Result) object {
	rules, results := []object{}, []object{}
	index := map[string]int{}
	for i, rule := range lint.Rules() {
		index[rule.ID] = i
		rules = append(rules, object{"id": rule.ID, "shortDescription": object{"text": rule.Text}, "helpUri": rule.Page()})
	}
	for _, f := range r.Findings {
		results = append(results, object{
			"ruleId": f.ID, "ruleIndex": index[f.ID], "level": f.Severity,
			"message": object{"text": f.Message()},
			"locations": []object{{"physicalLocation": object{
				"artifactLocation": object{"uri": (&url.URL{Path: f.File}).String()},
				"region":           object{"startLine": max(f.Line, 1)},
			}}},
		})
	}
	driver := object{
		"name": "lastcallctl lint", "version": cli.Version(version), "informationUri": lint.Home, "rules": rules,
	}
	return object{
		"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0",
		"runs": []object{{"tool": object{"driver": driver}, "results": results}},
	}
}
