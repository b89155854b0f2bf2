// Package kubeflags has the flags that lastcallctl and lastcall-controller share.
package kubeflags

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"regexp"

	"github.com/spf13/pflag"

	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
	"github.com/lastcall-dev/lastcall/kube/inject"
)

// Sidecar is the sidecar that is injected.
type Sidecar struct {
	Version string // of the program: see ReleasedImage

	options inject.Options
	native  bool
}

// Register adds the flags.
func (f *Sidecar) Register(flags *pflag.FlagSet) {
	flags.StringVar(&f.options.Image, "image", "",
		"`image` of lastcall in the pods, with its registry and a tag or a digest, "+
			"such as registry.example.com/team/lastcall:1.2.0 (default that of the release, if this program is one)")
	flags.StringVar(&f.options.EnvoyImage, "envoy-image", "",
		"`image` with lastcall and Envoy, for pods with the annotation lastcall.dev/proxy: envoy")
	cli.ChoiceFlag(flags, (*string)(&f.options.PullPolicy), "image-pull-policy", "",
		[]string{"Always", "IfNotPresent", "Never"},
		"pull `policy` of these images: Always, IfNotPresent or Never (default Kubernetes' own)")
	flags.BoolVar(&f.native, "native", true,
		"inject a native sidecar (Kubernetes 1.29 or later); =false: an ordinary container")
	captures := []string{string(inject.CaptureSidecar), string(inject.CaptureInit)}
	cli.ChoiceFlag(flags, (*string)(&f.options.Capture), "capture", captures[0], captures,
		"what redirects a pod's traffic to its sidecar: the sidecar, which then gives up every right, "+
			"or an init container; annotation lastcall.dev/capture")
	cli.ChoiceFlag(flags, &f.options.LogFormat, "sidecar-log-format", "text", []string{"text", "json"},
		"format of the sidecar's log")
}

// MeshConfig adds the flag for Istio's MeshConfig.
func MeshConfig(flags *pflag.FlagSet, file *string) {
	flags.StringVar(file, "mesh-config", "", "`file` with Istio's MeshConfig, whose defaultConfig applies to all pods")
}

// ReadMeshConfig returns the text of the file; nothing without one.
func ReadMeshConfig(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", cli.UsageError{Err: fmt.Errorf("--mesh-config must be a file with Istio's MeshConfig: %w", err)}
	}
	return string(text), nil
}

// Options returns the injection's options. mesh is a file of Istio's MeshConfig, or empty.
func (f *Sidecar) Options(mesh string) (inject.Options, error) {
	o := f.options
	o.Image = cmp.Or(o.Image, ReleasedImage(f.Version))
	if !f.native {
		o.Sidecar = inject.Classic
	}
	if o.Image == "" {
		return o, cli.UsageError{Err: errors.New("missing --image, the image that pods pull for the sidecar, " +
			"such as registry.example.com/team/lastcall:1.2.0; " +
			"make push REGISTRY=registry.example.com/team prints it")}
	}
	var err error
	if o.MeshConfig, err = ReadMeshConfig(mesh); err != nil {
		return o, err
	}
	if _, err := inject.Resolve(o.MeshConfig, nil, nil); err != nil {
		return o, cli.UsageError{Err: fmt.Errorf("mesh config: %w", err)}
	}
	return o, nil
}

var released = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+$`)

// ReleasedImage is the sidecar's image that was released with a version of this program; empty for other builds.
func ReleasedImage(version string) string {
	if !released.MatchString(version) {
		return ""
	}
	return "ghcr.io/lastcall-dev/lastcall:" + version
}
