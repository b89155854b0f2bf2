// Image makes a container image FROM scratch, without an engine, a registry or a network, as one tar:
//
//	image -name registry.example.com/team/lastcall:1.2.0 -user 1337:1337 -output dist/lastcall.oci.tar \
//	    'dist/linux-{arch}/lastcall' /lastcall
//
// SOURCE is a program, which becomes /NAME, or a folder, whose content becomes that of /. With {arch} in it the image
// is an index of amd64 and arm64, else it is one of this machine's architecture.
//
// What it promises: the same files and flags give the same digests, on any machine. All times are SOURCE_DATE_EPOCH, or
// else the commit's. The output appears whole or not at all.
//
// The tar is of an OCI layout, which has the full name of the image (io.containerd.image.name), as `ctr images import`,
// `docker load` and `skopeo copy oci-archive:` take it.
//
// The list of the modules that a Go program was built from is in the program: `go version -m`, and scanners of images,
// read it.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "image: %v\n", err)
		os.Exit(1)
	}
}

// labelPrefix is that of each label, which is an annotation, too, since registries show these.
const labelPrefix = "org.opencontainers.image."

// recipe is the image that the arguments describe.
type recipe struct {
	source          string // may contain {arch}
	config          v1.Config
	hasCapabilities bool // of the entry point
	created         time.Time
}

func run(args []string) (err error) {
	r := recipe{config: v1.Config{WorkingDir: "/", Labels: map[string]string{}}}
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "usage: image [flags] SOURCE ENTRYPOINT [ARGUMENT…]")
		flags.PrintDefaults()
	}
	named := flags.String("name", "", "`NAME:TAG` of the image")
	output := flags.String("output", "", "`FILE` to write")
	flags.StringVar(&r.config.User, "user", "", "`UID:GID`, numbers, since there is no passwd (default 0)")
	flags.BoolVar(&r.hasCapabilities, "capabilities", false,
		"the file of ENTRYPOINT has the capabilities net_admin and setpcap, permitted and not effective")
	flags.Func("env", "`K=V`; may be repeated", func(text string) error {
		r.config.Env = append(r.config.Env, text)
		return nil
	})
	flags.Func("label", "`K=V`, without "+labelPrefix+"; may be repeated", func(text string) error {
		k, v, _ := strings.Cut(text, "=")
		r.config.Labels[labelPrefix+k] = v
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() < 2 || *output == "" {
		return errors.New("-output, SOURCE and ENTRYPOINT are required")
	}
	r.source, r.config.Entrypoint, r.config.Cmd = flags.Arg(0), flags.Args()[1:2], flags.Args()[2:]
	tag, err := name.NewTag(*named)
	if err != nil {
		return fmt.Errorf("-name %q: must be NAME:TAG: %w", *named, err)
	}
	if r.created, err = sourceDate(); err != nil {
		return err
	}
	r.config.Labels[labelPrefix+"created"] = r.created.Format(time.RFC3339)
	whole, err := r.whole()
	if err != nil {
		return err
	}
	// containerd writes the host of Docker Hub in another way than go-containerregistry.
	full := strings.Replace(tag.Name(), name.DefaultRegistry+"/", "docker.io/", 1)
	desc, err := partial.Descriptor(whole)
	if err != nil {
		return err
	}
	top := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), mutate.IndexAddendum{
		Add: whole, Descriptor: v1.Descriptor{Platform: desc.Platform, Annotations: map[string]string{
			"io.containerd.image.name": full, "org.opencontainers.image.ref.name": tag.TagStr()}}})
	if err := write(top, *output); err != nil {
		return fmt.Errorf("write %s: %w", *output, err)
	}
	fmt.Printf("%s %s %s\n", full, desc.Digest, *output)
	return nil
}

// sourceDate is the time of everything in the image: SOURCE_DATE_EPOCH (reproducible-builds.org, seconds since 1970),
// or the time of the commit that is checked out, or, in sources without a history, 1970.
func sourceDate() (time.Time, error) {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		out, _ := exec.Command("git", "log", "-1", "--format=%ct").Output()
		text = cmp.Or(strings.TrimSpace(string(out)), "0")
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		err = fmt.Errorf("SOURCE_DATE_EPOCH %q: must be seconds since 1970", text)
	}
	return time.Unix(seconds, 0).UTC(), err
}

// whole is the image itself for one architecture, else an index.
func (r *recipe) whole() (mutate.Appendable, error) {
	if !strings.Contains(r.source, "{arch}") {
		return r.image(runtime.GOARCH)
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range []string{"amd64", "arm64"} {
		image, err := r.image(arch)
		if err != nil {
			return nil, err
		}
		platform := v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: platform})
	}
	return mutate.Annotations(index, r.config.Labels).(v1.ImageIndex), nil
}

func (r *recipe) image(arch string) (v1.Image, error) {
	layer, err := r.layer(strings.ReplaceAll(r.source, "{arch}", arch))
	if err != nil {
		return nil, err
	}
	created := v1.Time{Time: r.created}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.ConfigFile(image, &v1.ConfigFile{Architecture: arch, OS: "linux", Created: created,
		RootFS: v1.RootFS{Type: "layers"}, Config: r.config})
	if err != nil {
		return nil, err
	}
	history := v1.History{Created: created, CreatedBy: "lab/image"}
	image, err = mutate.Append(image, mutate.Addendum{Layer: layer, History: history})
	if err != nil {
		return nil, err
	}
	return mutate.Annotations(image, r.config.Labels).(v1.Image), nil
}

// write writes a tar of an OCI image layout. It contains no times, so that equal content has equal digests.
func write(index v1.ImageIndex, output string) (err error) {
	if err := os.MkdirAll(filepath.Dir(output), 0o755); err != nil {
		return err
	}
	scratch, err := os.MkdirTemp(filepath.Dir(output), ".image-") // /tmp may be small, and is another file system
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	folder, tar := filepath.Join(scratch, "layout"), filepath.Join(scratch, "tar")
	if _, err := layout.Write(folder, index); err != nil {
		return err
	}
	f, err := os.Create(tar)
	if err != nil {
		return err
	}
	if err := errors.Join(pack(f, folder, time.Unix(0, 0), ""), f.Close()); err != nil {
		return err
	}
	return os.Rename(tar, output)
}
