package main

import (
	"errors"
	"slices"

	"github.com/spf13/pflag"

	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
)

// files are manifests: a command takes them as arguments and with -f.
type files []string

func (f *files) register(flags *pflag.FlagSet) {
	flags.StringArrayVarP((*[]string)(f), "filename", "f", nil, "manifest `file`, folder or pattern, or - for standard input; the same as FILE; may be repeated")
}

// and are all that were given.
func (f files) and(args []string) ([]string, error) {
	all := slices.Concat(f, args)
	if len(all) == 0 {
		return nil, cli.UsageError{Err: errors.New("missing FILE: a manifest, a folder, or - for standard input")}
	}
	return all, nil
}
