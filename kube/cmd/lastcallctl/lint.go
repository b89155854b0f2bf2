package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/internal/cli"
	"github.com/lastcall-dev/lastcall/kube/inject"
	"github.com/lastcall-dev/lastcall/kube/lint"
	"github.com/lastcall-dev/lastcall/kube/manifest"
)

const lintHelp = `Find timers of a manifest that cannot work together when its pods stop.

The command reads what lastcallctl inject reads: YAML in any number of documents, JSON, Lists. docs/lint.md gives the reason for each rule.

Exit code: 0 without errors (there may be warnings), 1 with errors, which include a text that is not readable, and 2 for wrong flags and files that do not exist.`

type lintFlags struct {
	files  []string
	output cli.Format
	mesh   string
	rules  bool
}

func lintCommand() *cobra.Command {
	var f lintFlags
	cmd := &cobra.Command{
		Use:     "lint -f FILE|-",
		Short:   "Find timers in manifests that cannot work together",
		Long:    lintHelp,
		Example: "  lastcallctl lint -f deployment.yaml\n  helm template . | lastcallctl lint -f -",
		Args:    cli.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.StringArrayVarP(&f.files, "filename", "f", nil, "manifest `file`, folder or pattern, or - for standard input; may be repeated")
	flags.StringVar(&f.mesh, "mesh-config", "", "`file` with Istio's MeshConfig, whose defaultConfig applies to all pods")
	cli.OutputFlag(flags, &f.output, "output format")
	flags.BoolVar(&f.rules, "rules", false, "list the rules")
	return cmd
}

// found is a finding and its place.
type found struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Object string `json:"object"`
	lint.Finding
}

func (f *lintFlags) run(cmd *cobra.Command) error {
	switch {
	case f.rules:
		for _, r := range lint.Rules() {
			if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s  %s\n", r.ID, r.Text); err != nil {
				return err
			}
		}
		return nil
	case len(f.files) == 0:
		return cli.UsageError{Err: errors.New("missing -f FILE: a manifest, or - for standard input")}
	}
	mesh := ""
	if f.mesh != "" {
		text, err := os.ReadFile(f.mesh)
		if err != nil {
			return cli.UsageError{Err: fmt.Errorf("--mesh-config must be a file: %w", err)}
		}
		mesh = string(text)
	}
	files, err := manifest.Read(f.files, cmd.InOrStdin())
	if err != nil {
		return cli.UsageError{Err: fmt.Errorf("-f must be a file, a folder, a pattern or -: %w", err)}
	}
	all := []found{}
	for _, file := range files {
		for _, p := range file.Problems {
			all = append(all, found{file.Name, p.Line, "file", lint.Finding{ID: "LC000", Severity: lint.Error, Text: "is not readable: " + p.Err.Error()}})
		}
		workloads, err := readWorkloads(file)
		all = append(all, err...)
		if len(workloads) == 0 {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: nothing examined: it has no Pod, Deployment or other workload; the mesh's settings go into --mesh-config\n", file.Name)
		}
		all = append(all, lintObjects(mesh, file, workloads)...)
	}
	return f.write(cmd, all)
}

func readWorkloads(file *manifest.File) (all map[*manifest.Object]*manifest.Workload, wrong []found) {
	all = map[*manifest.Object]*manifest.Workload{}
	for _, o := range file.Objects {
		w, err := o.Workload()
		if err != nil {
			wrong = append(wrong, found{file.Name, o.Line(""), o.String(), lint.Finding{ID: "LC000", Severity: lint.Error, Text: err.Error()}})
		} else if w != nil {
			all[o] = w
		}
	}
	return all, wrong
}

func lintObjects(mesh string, file *manifest.File, workloads map[*manifest.Object]*manifest.Workload) []found {
	var all []found
	inputs := map[*manifest.Workload]lint.Input{}
	for _, o := range file.Objects {
		w := workloads[o]
		if w == nil {
			continue
		}
		settings, err := inject.Resolve(mesh, w.Pod.Annotations, nil)
		inputs[w] = lint.Input{Pod: w.Pod, Job: w.IsJob(), Settings: settings, Err: err}
		below := ""
		for _, key := range w.Path {
			below += key + "."
		}
		for _, finding := range lint.Pod(inputs[w]) {
			finding.Path = below + finding.Path
			all = append(all, found{file.Name, o.Line(finding.Path), w.String(), finding})
		}
	}
	for _, o := range file.Objects {
		var s corev1.Service
		if !o.Is("", "Service") || o.Decode(&s) != nil {
			continue
		}
		for _, w := range workloads {
			if w.Namespace != s.Namespace {
				continue
			}
			for _, finding := range lint.Service(&s, inputs[w]) {
				all = append(all, found{file.Name, o.Line(finding.Path), "Service " + s.Name + " over " + w.String(), finding})
			}
		}
	}
	return all
}

func (f *lintFlags) write(cmd *cobra.Command, all []found) error {
	out := cmd.OutOrStdout()
	if f.output == cli.JSON {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(all); err != nil {
			return err
		}
	}
	wrong := false
	for _, one := range all {
		wrong = wrong || one.Severity == lint.Error
		if f.output == cli.PlainText {
			if _, err := fmt.Fprintf(out, "%s:%d: %s %s: %s: %s %s\n", one.File, one.Line, one.Severity, one.ID, one.Object, one.Path, one.Text); err != nil {
				return err
			}
		}
	}
	if wrong {
		return cli.ErrReported
	}
	return nil
}
