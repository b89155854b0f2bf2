package main

import (
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
	"github.com/lastcall-dev/lastcall/kube/cmd/internal/kubeflags"
	"github.com/lastcall-dev/lastcall/kube/inject"
	"github.com/lastcall-dev/lastcall/kube/manifest"
)

const injectHelp = `Add lastcall to the workloads of a manifest, as the webhook does to their pods.

The command reads Pods, Deployments, StatefulSets, DaemonSets, ReplicaSets, Jobs, CronJobs, other kinds with a pod
template (docs/lint.md), and Lists of them as YAML or JSON, in any number of documents, and writes everything to
standard output. Other objects pass through unchanged. A workload that cannot be injected is unchanged except for the
annotation lastcall.dev/status, which gives the reason, as does standard error. What is not readable, and kinds with
containers and without a pod template, pass through unchanged with a line there.

A Namespace in the input applies to its workloads: with the label lastcall.dev/inject: "false", only workloads that ask
for lastcall themselves are injected; if its pod security (pod-security.kubernetes.io/enforce) does not admit NET_ADMIN,
nothing is captured, and the app's preStop hook watches its sockets instead.

The pods of a workload share the token of their preStop hook. By default each call makes a new token, so that each
kubectl apply replaces the pods. With --token-seed, a file with a secret, the tokens stay the same.

Exit code: 0 when the manifest was written, 1 for an error in it (what is not readable does not keep the
rest from being written), 2 for wrong flags.`

type injectFlags struct {
	files
	mesh, seed, namespace string
	sidecar               kubeflags.Sidecar
}

func injectCommand() *cobra.Command {
	var f injectFlags
	cmd := &cobra.Command{
		Use:   "inject FILE",
		Short: "Add lastcall to the workloads of a manifest",
		Long:  injectHelp,
		Example: `  kubectl get deployment web -o yaml |
    lastcallctl inject --image registry.example.com/team/lastcall:1.2.0 - |
    kubectl apply -f -`,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	flags := cmd.Flags()
	f.files.register(flags)
	flags.StringVarP(&f.namespace, "namespace", "n", "", "`namespace` of workloads that have none")
	kubeflags.MeshConfig(flags, &f.mesh)
	flags.StringVar(&f.seed, "token-seed", "",
		"`file` with a secret from which the hooks' tokens are derived (default random)")
	cli.Group(flags, "Injected sidecar", f.sidecar.Register)
	return cmd
}

func (f *injectFlags) run(cmd *cobra.Command, args []string) error {
	given, err := f.files.and(args)
	if err != nil {
		return err
	}
	if len(given) > 1 {
		return cli.UsageError{Err: fmt.Errorf("%d files: must be one manifest, or - for standard input", len(given))}
	}
	f.sidecar.Version = cli.Version(version)
	o, err := f.sidecar.Options(f.mesh)
	if err != nil {
		return err
	}
	seed := make([]byte, 32)
	if f.seed == "" {
		_, _ = rand.Read(seed) // never fails
	} else if seed, err = os.ReadFile(f.seed); err != nil {
		return cli.UsageError{Err: fmt.Errorf("--token-seed must be a file: %w", err)}
	} else if len(seed) < 16 {
		return cli.UsageError{Err: fmt.Errorf("--token-seed %s has %d bytes: must have 16 or more", f.seed, len(seed))}
	}
	text, err := manifest.ReadText(given[0], cmd.InOrStdin())
	if err != nil {
		return cli.UsageError{Err: fmt.Errorf("FILE must be a file or -: %w", err)}
	}
	name := manifest.Shown(given[0])
	out, done, err := inject.Manifest(text, func(w *manifest.Workload) inject.Options {
		o := o
		o.ByDefault, o.Offline, o.Job = true, true, w.IsJob()
		o.Namespace.Name = cmp.Or(w.Namespace, f.namespace)
		o.Token = tokenFor(seed, w)
		return o
	})
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	wrong, isUnread := false, false
	for _, d := range done {
		where := fmt.Sprintf("%s: %s: %s", name, d.Where, d.What)
		switch d.Result.Outcome {
		case inject.LeftAlone:
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: left alone: %s\n", where, d.Result.Reason)
			wrong, isUnread = wrong || d.Result.Err != nil, isUnread || d.IsUnread
		case inject.NotRequested:
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: not injected: %s\n", where, d.Result.Reason)
		}
		for _, note := range d.Result.Notes {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: note: %s\n", where, note)
		}
	}
	if wrong {
		return cli.ErrReported // half a manifest must not be applied
	}
	if _, err = cmd.OutOrStdout().Write(out); err == nil && isUnread {
		err = cli.ErrReported
	}
	return err
}

// tokenFor is a workload's token under a seed.
func tokenFor(seed []byte, w *manifest.Workload) string {
	mac := hmac.New(sha256.New, seed)
	_, _ = fmt.Fprintf(mac, "%s\x00%s\x00%s", w.Kind, w.Namespace, w.Name)
	return hex.EncodeToString(mac.Sum(nil)[:16])
}
