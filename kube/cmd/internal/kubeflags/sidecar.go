// Package kubeflags has the flags that lastcallctl and lastcall-controller share.
package kubeflags

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/internal/cli"
	"github.com/lastcall-dev/lastcall/kube/inject"
)

// Sidecar is the sidecar that is injected.
type Sidecar struct {
	image, envoyImage, pullPolicy, logFormat string
	native                                   bool
}

// Register adds the flags.
func (f *Sidecar) Register(flags *pflag.FlagSet) {
	flags.StringVar(&f.image, "image", "", "`image` of lastcall in the pods, with its registry, and a tag or a digest: registry.example.com/team/lastcall:1.2.0 or …/lastcall@sha256:…; required")
	flags.StringVar(&f.envoyImage, "envoy-image", "", "`image` with lastcall and Envoy, for pods that ask for lastcall.dev/proxy: envoy")
	flags.StringVar(&f.pullPolicy, "image-pull-policy", "", "Always, IfNotPresent or Never (default Kubernetes' own)")
	flags.BoolVar(&f.native, "native", true, "a native sidecar, for Kubernetes 1.29 and later; =false: a container among the others")
	flags.StringVar(&f.logFormat, "sidecar-log-format", "text", "text or json")
}

// Options returns the injection's options. mesh is a file of Istio's MeshConfig, or empty.
func (f *Sidecar) Options(mesh string) (inject.Options, error) {
	o := inject.Options{Image: f.image, EnvoyImage: f.envoyImage, PullPolicy: corev1.PullPolicy(f.pullPolicy), Sidecar: inject.Native, LogFormat: f.logFormat}
	if !f.native {
		o.Sidecar = inject.Classic
	}
	if f.image == "" {
		return o, cli.UsageError{Err: errors.New("missing --image: the image that pods pull for the sidecar, such as registry.example.com/team/lastcall:1.2.0, as make push REGISTRY=registry.example.com/team prints it")}
	}
	if f.logFormat != "text" && f.logFormat != "json" {
		return o, cli.UsageError{Err: fmt.Errorf("--sidecar-log-format %q: must be text or json", f.logFormat)}
	}
	if mesh != "" {
		text, err := os.ReadFile(mesh)
		if err != nil {
			return o, cli.UsageError{Err: fmt.Errorf("--mesh-config takes a file with Istio's MeshConfig: %w", err)}
		}
		o.MeshConfig = string(text)
	}
	if err := o.Validate(); err != nil {
		return o, cli.UsageError{Err: err}
	}
	return o, nil
}
