package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
	"github.com/lastcall-dev/lastcall/kube/losses"
)

const reportHelp = `List workloads by what their terminations have lost, with what would help each of them and the patch for its manifest, and the time that rollouts wait without a request in flight.

The numbers come from Prometheus, which reads the observers' metrics, or from JSON lines: those of lastcallctl observe --json, or the log of the observers on the nodes.

The advice follows from what was observed. A workload whose terminations were not observed completely is never called clean.

Exit code: 0 when no request was lost for certain (--strict: and none may have been), 1 when one was, or nothing was found, 2 for wrong flags.`

// reportFlags are those of lastcallctl observe report.
type reportFlags struct {
	file, prometheus, namespace, span string
	strict                            bool
	output                            cli.Format
}

func reportCommand() *cobra.Command {
	var f reportFlags
	cmd := &cobra.Command{
		Use:     "report {--prometheus URL | -f FILE}",
		Short:   "List workloads by their losses, with what would help",
		Long:    reportHelp,
		Example: "  lastcallctl observe report --prometheus http://localhost:9090 --range 7d\n  kubectl -n lastcall-system logs --tail=-1 \\\n    -l app.kubernetes.io/component=observer |\n    lastcallctl observe report -f -",
		Args:    cli.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.prometheus, "prometheus", "", "`URL` of Prometheus")
	flags.StringVar(&f.span, "range", "7d", "with --prometheus, the `time` before now: hours or days such as 12h or 7d, at most 366d")
	flags.StringVarP(&f.file, "filename", "f", "", "`file` with JSON lines of observers, or - for standard input")
	flags.StringVarP(&f.namespace, "namespace", "n", "", "only the workloads of this `namespace` (default all)")
	flags.BoolVar(&f.strict, "strict", false, "exit with 1 also if a request may have been lost")
	cli.OutputFlag(flags, &f.output, "output format")
	return cmd
}

func (f *reportFlags) run(cmd *cobra.Command) error {
	if (f.file == "") == (f.prometheus == "") {
		return cli.UsageError{Err: errors.New("use one of --prometheus URL and -f FILE")}
	}
	var totals *losses.Totals
	var err error
	if f.file != "" {
		totals, err = f.fromLines(cmd.InOrStdin(), cmd.ErrOrStderr())
	} else {
		totals, err = f.fromPrometheus(cmd)
	}
	if err != nil {
		return err
	}
	all := totals.Workloads()
	if len(all) == 0 {
		return errors.New("no termination was observed: is the observer installed, and has a pod ended since? (docs/observe.md)")
	}
	isLossy := slices.ContainsFunc(all, func(w *losses.Workload) bool {
		return w.LostLeast() > 0 || f.strict && w.Perhaps+w.Unknown > 0
	})
	if f.output == cli.JSON {
		err = writeReportJSON(cmd.OutOrStdout(), all)
	} else {
		err = writeReport(cmd.OutOrStdout(), all)
	}
	if err == nil && isLossy {
		err = cli.ErrReported
	}
	return err
}

func (f *reportFlags) fromLines(stdin io.Reader, notes io.Writer) (*losses.Totals, error) {
	from := stdin
	if f.file != "-" {
		file, err := os.Open(f.file)
		if err != nil {
			return nil, cli.UsageError{Err: fmt.Errorf("-f must be a file or -: %w", err)}
		}
		defer func() { _ = file.Close() }()
		from = file
	}
	totals := new(losses.Totals)
	skipped, err := losses.Read(from, func(t losses.Termination) {
		if f.namespace == "" || t.Namespace == f.namespace {
			totals.Add(t)
		}
	})
	if skipped > 0 {
		fmt.Fprintf(notes, "lines skipped, which are not terminations: %d\n", skipped)
	}
	return totals, err
}

func (f *reportFlags) fromPrometheus(cmd *cobra.Command) (*losses.Totals, error) {
	base, span, err := parsePrometheus(f.prometheus, f.span)
	if err != nil {
		return nil, cli.UsageError{Err: err}
	}
	ctx, stop := cli.SignalContext(cmd.Context())
	defer stop()
	totals, err := losses.Query(ctx, base, span, f.namespace)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return totals, err
}

// parsePrometheus reads --prometheus and --range.
func parsePrometheus(address, text string) (*url.URL, time.Duration, error) {
	span, err := parseSpan(text)
	if err != nil {
		return nil, 0, err
	}
	base, err := url.Parse(address)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" {
		return nil, 0, fmt.Errorf("--prometheus %q: must be a URL such as http://localhost:9090", address)
	}
	return base, span, nil
}

// parseSpan reads --range: a duration, or days.
func parseSpan(text string) (span time.Duration, err error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		var n int
		if n, err = strconv.Atoi(days); err == nil && n <= 366 {
			span = time.Duration(n) * 24 * time.Hour
		}
	} else {
		span, err = time.ParseDuration(text)
	}
	if err != nil || span < time.Minute || span > 366*24*time.Hour {
		return 0, fmt.Errorf("--range %q: must be hours or days such as 12h or 7d, 1m to 366d", text)
	}
	return span, nil
}

// mostShown is how many workloads the text lists, those with the most losses.
const mostShown = 20

// writeReport prints a table, 80 columns wide, then what would help.
func writeReport(out io.Writer, all []*losses.Workload) error {
	var b strings.Builder
	short := shortFor(out)
	fmt.Fprintf(&b, "%-33s %-12s %6s %6s %7s %10s\n", "WORKLOAD", "PROXY", "ENDS", "LOST", "SIGKILL", "IDLE")
	shown := all[:min(len(all), mostShown)]
	for _, w := range shown {
		fmt.Fprintf(&b, "%-33s %-12s %6d %6d %7d %10s\n", short(w.Namespace+"/"+w.Name, 33), short(w.Proxy, 12), w.Terminations, w.LostLeast(), w.Killed, losses.Seconds(w.Idle))
	}
	if n := len(all) - len(shown); n > 0 {
		fmt.Fprintf(&b, "and %d more: -n NAMESPACE, or -o json\n", n)
	}
	var terminations, lost int
	var idle, total float64
	for _, w := range all {
		terminations, lost, idle, total = terminations+w.Terminations, lost+w.LostLeast(), idle+w.Idle, total+w.Seconds
	}
	fmt.Fprintf(&b, "\n%s\n", terminal.Wrap(fmt.Sprintf("Terminations: %d. Requests lost: %d. Pods were kept for %s of %s without a request in flight: what fixed sleeps cost the rollouts.",
		terminations, lost, losses.Seconds(idle), losses.Seconds(total)), columns))
	for _, w := range shown {
		if len(losses.Advise(w)) > 0 {
			b.WriteByte('\n')
			writeWorkload(&b, w)
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// writeReportJSON prints a list of workloads, each with its advice.
func writeReportJSON(out io.Writer, all []*losses.Workload) error {
	type row struct {
		*losses.Workload
		Lost   int             `json:"lost"`
		Advice []losses.Advice `json:"advice"`
	}
	rows := make([]row, 0, len(all))
	for _, w := range all {
		rows = append(rows, row{w, w.LostLeast(), append([]losses.Advice{}, losses.Advise(w)...)})
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(rows)
}
