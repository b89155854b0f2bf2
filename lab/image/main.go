// Image makes container images FROM scratch, without an engine, a registry or a network: files,
// an entry point and their metadata, as one tar.
//
//	image --name registry.example.com/team/lastcall:1.2.0 --platform linux/amd64,linux/arm64 \
//	    --file 'dist/{os}-{arch}/lastcall=/lastcall:0755' --entrypoint /lastcall --user 1337:1337 \
//	    --output dist/lastcall.oci.tar
//
// What it promises: the same files and flags give the same digests, on any machine. All times
// are SOURCE_DATE_EPOCH, or else the commit's. The output appears whole or not at all.
//
// The tar is of an OCI layout, which holds one image, or an index of one image per platform, under its full names
// (io.containerd.image.name), as `ctr images import`, `docker load` and `skopeo copy oci-archive:` take it.
//
// The list of the modules that a Go program was built from is in the program: `go version -m`, and scanners of images,
// read it.
package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/spf13/pflag"
)

func main() {
	if err := run(os.Args[1:]); err != nil && !errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "image: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	r, err := parse(args)
	if err != nil {
		return err
	}
	digest, err := produce(r)
	if err != nil {
		return err
	}
	fmt.Printf("%s %s %s\n", fullName(r.name), digest, r.output)
	return nil
}

// parse reads the flags into a recipe.
func parse(args []string) (*recipe, error) {
	flags := pflag.NewFlagSet("image", pflag.ContinueOnError)
	flags.SortFlags = false
	name := flags.String("name", "", "`NAME:TAG` of the image")
	platforms := flags.StringSlice("platform", []string{"linux/" + runtime.GOARCH},
		"`OS/ARCH[/VARIANT]`, one or several; several make an index")
	files := flags.StringArray("file", nil,
		"`SRC=DEST[:MODE]`: a file or a folder's content; {os} and {arch} in SRC are the platform's; default 0755 or 0644")
	dirs := flags.StringArray("dir", nil, "`DEST[:MODE]`: an empty folder; default mode 0755")
	capabilities := flags.StringArray("capabilities", nil,
		"`PATH=NAME[,NAME]`: file capabilities of a program, permitted and not effective: net_admin, setpcap")
	entrypoint := flags.StringArray("entrypoint", nil, "`PATH` of the program, then its fixed arguments, one each time")
	command := flags.StringArray("cmd", nil, "`ARG`: default arguments, one each time")
	env := flags.StringArray("env", nil, "`K=V`; may be repeated")
	user := flags.String("user", "", "`UID[:GID]`, numbers, since there is no passwd (default 0)")
	labels := flags.StringArray("label", nil,
		"`K=V`; those of org.opencontainers are annotations too, and .created has a default")
	output := flags.String("output", "", "`FILE` to write")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("takes no argument, got %q", flags.Arg(0))
	}
	r := &recipe{entrypoint: *entrypoint, command: *command, env: *env, user: *user, output: *output}
	if err := r.read(*name, *platforms, *files, *dirs, *capabilities, *labels); err != nil {
		return nil, err
	}
	var err error
	if r.created, err = sourceDate(); err != nil {
		return nil, err
	}
	return r, r.check()
}

// pair splits K=V.
func pair(flag, text string) (string, string, error) {
	k, v, ok := strings.Cut(text, "=")
	if !ok || k == "" {
		return "", "", fmt.Errorf("--%s %q: must be KEY=VALUE", flag, text)
	}
	return k, v, nil
}
