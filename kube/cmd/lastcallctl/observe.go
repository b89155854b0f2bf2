package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
	"github.com/lastcall-dev/lastcall/kube/cmd/internal/kubeflags"
	"github.com/lastcall-dev/lastcall/kube/ephemeral"
	"github.com/lastcall-dev/lastcall/kube/workload"
)

const observeHelp = `Observe what the terminations of a workload's pods lose, without an installation. The command adds
an ephemeral container to each pod, which watches the kernel's table of sockets in the pod's network namespace, and
prints a line for each pod that ends. The containers have no root and no capability; they touch neither the app nor its
traffic.

It ends when all pods that ran at its start have ended: trigger a rollout, or let --restart do so. With --rollouts N, it
then observes the new pods, N times in all.

Kubernetes cannot remove an ephemeral container. Each ends with its pod, or by itself after --timeout. It needs the
rights to patch pods/ephemeralcontainers, to get, list and watch pods, to get pods/log and the workload, and with
--restart to patch the workload.

A request that is lost was reset, closed without an answer, or refused. LOST has two numbers where the kernel's counters
do not decide: at least, and at most. docs/observe-how.md has the rules.

Exit code: 0 when no request was lost for certain (--strict: and none may have been), 1 when one was, or no pod was
observed, 2 for wrong flags.`

// observeFlags are those of lastcallctl observe.
type observeFlags struct {
	clusterFlags
	image                      string
	restart, yes, json, strict bool
	rollouts                   int
	timeout                    time.Duration
}

func observeCommand() *cobra.Command {
	var f observeFlags
	cmd := &cobra.Command{
		Use:   "observe KIND/NAME",
		Short: "Observe what a workload's pods lose when they end",
		Long:  observeHelp,
		Example: `  lastcallctl observe deploy/web -n shop \
    --image registry.example.com/team/lastcall:1.2.0
  lastcallctl observe deploy/web --restart
  lastcallctl observe deploy/web --restart --yes --rollouts 3 --strict`,
		Args: oneWorkload,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0]) },
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.restart, "restart", false, "trigger a rollout as kubectl rollout restart does, after a confirmation")
	flags.BoolVarP(&f.yes, "yes", "y", false, "do not ask for the confirmation")
	flags.IntVar(&f.rollouts, "rollouts", 1, "`number` of rollouts to observe, 1 to 100")
	flags.DurationVar(&f.timeout, "timeout", 15*time.Minute,
		"time limit, 10s to 24h; the containers end by themselves then")
	flags.BoolVar(&f.json, "json", false, "print a line of JSON for each termination")
	flags.BoolVar(&f.strict, "strict", false, "exit with 1 also if a request may have been lost")
	flags.StringVar(&f.image, "image", "",
		"`image` of lastcall for the containers (default that of the installed webhook's sidecars, or of the release)")
	f.register(flags, "`namespace` of the workload (default that of the context)")
	return cmd
}

// check refuses flags that cannot work.
func (f *observeFlags) check(cmd *cobra.Command) error {
	switch {
	case f.timeout < 10*time.Second || f.timeout > 24*time.Hour:
		return fmt.Errorf("--timeout %v: must be 10s to 24h", f.timeout)
	case f.rollouts < 1 || f.rollouts > 100:
		return fmt.Errorf("--rollouts %d: must be 1 to 100", f.rollouts)
	case f.yes && !f.restart:
		return errors.New("--yes has no meaning without --restart")
	case f.restart:
		return canAsk(cmd, f.yes)
	}
	return nil
}

func (f *observeFlags) run(cmd *cobra.Command, name string) error {
	if err := f.check(cmd); err != nil {
		return cli.UsageError{Err: err}
	}
	w, err := f.workload(name)
	if err != nil {
		return cli.UsageError{Err: err}
	}
	clients, err := f.connect()
	if err != nil {
		return err
	}
	interrupt, stop := cli.SignalContext(cmd.Context())
	defer stop()
	until := time.Now().Add(f.timeout)
	ctx, cancel := context.WithDeadline(interrupt, until)
	defer cancel()
	if f.image == "" {
		if f.image, err = installedImage(ctx, clients); err != nil {
			return err
		}
	}
	table := newObserveTable(cmd.OutOrStdout(), cmd.ErrOrStderr(), f.json)
	o := ephemeral.Options{Image: f.image, Limit: f.timeout, Rounds: f.rollouts, Report: table}
	if f.restart {
		o.Restart = func(round, pods int) error {
			question := fmt.Sprintf("Restart %s in namespace %s, whose pods (%d) are observed?", w, w.Namespace, pods)
			if err := confirm(ctx, cmd, f.yes || round > 0, question); err != nil {
				return err
			}
			table.Note("rollout %d of %d of %s begins", round+1, f.rollouts, w)
			return nil
		}
	}
	left, err := ephemeral.Run(ctx, clients, w, o)
	if err != nil && ctx.Err() == nil {
		return errors.Join(err, table.close(), leftText(left, until))
	}
	printing := table.close()
	if len(left) > 0 {
		table.Note("%v", leftText(left, until))
	}
	switch {
	case interrupt.Err() != nil:
		return interrupt.Err()
	case printing != nil:
		return printing
	case table.terminations() == 0:
		return fmt.Errorf("no pod of %s has ended within %v", w, f.timeout)
	case table.isLossy(f.strict):
		return cli.ErrReported
	}
	return nil
}

// leftText names the observers that cannot be removed; nil without any.
func leftText(pods []string, until time.Time) error {
	if len(pods) == 0 {
		return nil
	}
	shown := pods[:min(len(pods), 5)]
	more := ""
	if len(pods) > len(shown) {
		more = fmt.Sprintf(" and %d others", len(pods)-len(shown))
	}
	return fmt.Errorf("ephemeral containers remain in %s%s: "+
		"each ends with its pod, or by itself no later than about %s",
		strings.Join(shown, ", "), more, until.Format(time.TimeOnly))
}

// installedImage is the image that the installed webhook injects, or that of this release.
func installedImage(ctx context.Context, c workload.Clients) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	d, err := c.Apps.Deployments(installed.namespace).Get(ctx, installed.name, metav1.GetOptions{})
	if err == nil {
		for _, one := range d.Spec.Template.Spec.Containers {
			for _, arg := range one.Args {
				if image, ok := strings.CutPrefix(arg, "--image="); ok {
					return image, nil
				}
			}
		}
		err = fmt.Errorf("%s/%s has no --image", installed.namespace, installed.name)
	}
	if image := kubeflags.ReleasedImage(cli.Version(version)); image != "" {
		return image, nil
	}
	err = fmt.Errorf("missing --image: name lastcall's image where your nodes pull it "+
		"(no webhook to read it from: %w)", err)
	return "", cli.UsageError{Err: err}
}
