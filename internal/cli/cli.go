// Package cli is what the command lines of the programs have in common: flags' errors, exit codes, signals, logs.
package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// UsageError is an error in a command's flags or arguments; it ends a program with exit code 2.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }
func (e UsageError) Unwrap() error { return e.Err }

// Prepare gives a program's commands, which must be complete, the same manners: --version, help without
// empty defaults, and errors that say which value a flag takes.
func Prepare(root *cobra.Command, version string) {
	versionFlag(root, version)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return UsageError{flagError(err)} })
	tidy(root)
}

// versionFlag gives the root command --version. Cobra's own, with a template for its
// output, keeps the linker from dropping unused methods (text/template): 2.4 MB of
// program.
func versionFlag(root *cobra.Command, version string) {
	asked := root.Flags().BoolP("version", "v", false, "print the version")
	run := root.RunE
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if *asked {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), version)
			return err
		}
		return run(cmd, args)
	}
}

// tidy removes the defaults that pflag prints though they say nothing.
func tidy(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.DefValue == "[]" {
			f.DefValue = ""
		}
	})
	for _, below := range cmd.Commands() {
		tidy(below)
	}
}

// takes says what a flag of a type takes.
var takes = map[string]string{
	"bool":          "true or false",
	"int":           "a whole number",
	"int32":         "a whole number",
	"uint":          "a whole number, 0 or more",
	"uintSlice":     "whole numbers, separated by commas",
	"duration":      "a duration such as 500ms, 5s or 1m30s",
	"durationSlice": "durations such as 500ms or 5s, separated by commas",
}

// flagError says in words what pflag says in strconv's.
func flagError(err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	want := takes[invalid.GetFlag().Value.Type()]
	if want == "" {
		return fmt.Errorf("--%s %q: %w", invalid.GetFlag().Name, invalid.GetValue(), invalid.Unwrap())
	}
	return fmt.Errorf("--%s %q: must be %s", invalid.GetFlag().Name, invalid.GetValue(), want)
}

// NoArgs is cobra.NoArgs with an error that knows the commands.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if cmd.HasSubCommands() {
		return UsageError{fmt.Errorf("%s: unknown command %q", cmd.CommandPath(), args[0])}
	}
	return UsageError{fmt.Errorf("%s takes no argument, got %q", cmd.CommandPath(), args[0])}
}

// Format is the value of --output: text or json.
type Format string

// The formats.
const (
	Text Format = "text"
	JSON Format = "json"
)

// OutputFlag registers -o, --output, which is text by default.
func OutputFlag(flags *pflag.FlagSet, f *Format, usage string) {
	*f = Text
	flags.VarP(f, "output", "o", usage)
}

func (f *Format) String() string { return string(*f) }

// Set refuses anything but the formats.
func (f *Format) Set(text string) error {
	switch format := Format(text); format {
	case Text, JSON:
		*f = format
		return nil
	}
	return errors.New("must be text or json")
}

// Type is the placeholder in --help.
func (f *Format) Type() string { return "format" }
