// Chart checks, renders and packs the Helm chart, by Helm's own packages: no helm program is needed.
//
//	chart lint CHART                              the findings of helm lint
//	chart template CHART [--set K=V] [-n NS]      the manifests, in the order in which they are to be applied
//	chart package CHART --version V --to FOLDER   a .tgz
//	chart kustomize CHART [--set K=V] --to FOLDER the manifests as a kustomize base
//	chart document CHART                          the table of values in its README, from values.yaml
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/pflag"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/strvals"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil && !errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "chart: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string, stdout io.Writer) error {
	flags := pflag.NewFlagSet("chart lint|template|package|kustomize|document CHART", pflag.ContinueOnError)
	set := flags.StringArray("set", nil, "`K=V` over values.yaml")
	release := flags.String("release", "lastcall", "`name` of the release")
	namespace := flags.StringP("namespace", "n", defaultNamespace, "`namespace` of the release")
	version := flags.String("version", "", "what git describe says: the chart's version, and the images' tag")
	to := flags.String("to", "", "`folder` to write to")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 2 {
		return fmt.Errorf("must be lint, template, package, kustomize or document, and the chart's folder; got %q",
			flags.Args())
	}
	what, folder := flags.Arg(0), flags.Arg(1)
	if (what == "package" || what == "kustomize") && *to == "" {
		return fmt.Errorf("%s needs --to FOLDER", what)
	}
	values := map[string]any{}
	for _, s := range *set {
		if err := strvals.ParseInto(s, values); err != nil {
			return fmt.Errorf("--set %q: %w", s, err)
		}
	}
	switch what {
	case "lint":
		return lintChart(folder, values, *namespace)
	case "document":
		return document(folder)
	}
	c, err := loader.Load(folder)
	if err != nil {
		return fmt.Errorf("load %s: %w", folder, err)
	}
	if *version != "" {
		c.Metadata.Version, c.Metadata.AppVersion = semantic(*version), *version
	}
	switch what {
	case "template":
		r, err := render(c, values, *release, *namespace)
		if err != nil {
			return err
		}
		for _, o := range r.objects {
			if _, err := fmt.Fprintf(stdout, "---\n%s\n", strings.TrimSpace(o.text)); err != nil {
				return err
			}
		}
		return nil
	case "package":
		return pack(c, *to, stdout)
	case "kustomize":
		return writeBase(c, values, *to)
	}
	return fmt.Errorf("there is no command %q: must be lint, template, package, kustomize or document", what)
}

// lintChart fails on every message of helm lint, except about the missing icon.
func lintChart(folder string, values map[string]any, namespace string) error {
	var errs []error
	for _, m := range lint.RunAll(folder, values, namespace).Messages {
		if m.Severity > support.InfoSev {
			errs = append(errs, m)
		}
	}
	return errors.Join(errs...)
}

func pack(c *chart.Chart, to string, stdout io.Writer) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	name, err := util.Save(c, to)
	if err != nil {
		return fmt.Errorf("pack the chart: %w", err)
	}
	_, err = fmt.Fprintln(stdout, name)
	return err
}

var isSemantic = regexp.MustCompile(`^v?[0-9]+\.[0-9]+\.[0-9]+(-|\+|$)`)

// semantic makes a version that Helm takes of what git describe says: a tag as it is, a commit
// behind a prefix, since a part of digits alone may not begin with 0.
func semantic(version string) string {
	if isSemantic.MatchString(version) {
		return strings.TrimPrefix(version, "v")
	}
	return "0.0.0-g" + version
}
