// Package cli has the common parts of all command lines: help, errors, completion, logs, signals.
package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lastcall-dev/lastcall/internal/timers"
)

// UsageError is an error in a command's flags or arguments; it ends a program with exit code 2.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }
func (e UsageError) Unwrap() error { return e.Err }

// Prepare gives all commands of a program --version, help in groups, completion, and errors that describe
// the values of a flag. Call it when all commands have been added.
func Prepare(root *cobra.Command, version string) {
	versionFlag(root, version)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return UsageError{flagError(cmd, err)} })
	registerHelp(root)
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { cobra.CheckErr(writeHelp(cmd.OutOrStdout(), cmd)) })
	// It costs every sidecar 0.4 MB otherwise.
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], cobra.ShellCompRequestCmd) {
		complete(root)
	}
}

// versionFlag gives the root command --version. Cobra's own has a template, which costs 2.4 MB: see writeHelp.
func versionFlag(root *cobra.Command, version string) {
	wanted := root.Flags().BoolP("version", "v", false, "print the version")
	run := root.RunE
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if *wanted {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), version)
			return err
		}
		return run(cmd, args)
	}
}

// takes describes the values of a flag by its type.
var takes = map[string]string{
	"bool":          "true or false",
	"int":           "a whole number",
	"int32":         "a whole number",
	"uint":          "a whole number, 0 or more",
	"uint16":        "a whole number from 0 to 65535",
	"uintSlice":     "whole numbers, separated by commas",
	"duration":      "a duration such as 500ms, 5s or 1m30s",
	"durationSlice": "durations such as 500ms or 5s, separated by commas",
}

// flagError describes the value that a flag takes, where pflag's own message has only the error of strconv, or which
// flag was probably meant.
func flagError(cmd *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) {
		name := unknown.GetSpecifiedName()
		for _, c := range cmd.Commands() {
			if c.Flags().Lookup(name) != nil {
				return fmt.Errorf("%w: did you mean %s --%s?", err, c.CommandPath(), name)
			}
		}
		var known []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
		if meant, ok := timers.Nearest(name, known); ok {
			return fmt.Errorf("%w: did you mean --%s?", err, meant)
		}
	}
	if !errors.As(err, &invalid) {
		return err
	}
	want := takes[invalid.GetFlag().Value.Type()]
	if want == "" || invalid.GetFlag().Name == "help" {
		return fmt.Errorf("--%s %q: %w", invalid.GetFlag().Name, invalid.GetValue(), invalid.Unwrap())
	}
	return fmt.Errorf("--%s %q: must be %s", invalid.GetFlag().Name, invalid.GetValue(), want)
}

// NoArgs is cobra.NoArgs with an error that names the command.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if cmd.HasSubCommands() {
		return UsageError{fmt.Errorf("unknown command %q%s", args[0], suggestion(cmd, args[0]))}
	}
	return UsageError{fmt.Errorf("%s takes no arguments, got %q", cmd.CommandPath(), args[0])}
}

// suggestion is the command that was probably meant.
func suggestion(cmd *cobra.Command, name string) string {
	if cmd.Flags().Lookup(name) != nil {
		return ": did you mean --" + name + "?"
	}
	cmd.SuggestionsMinimumDistance = 2
	if similar := cmd.SuggestionsFor(name); len(similar) > 0 {
		return ": did you mean " + Or(similar) + "?"
	}
	return ""
}

// Format is the value of --output.
type Format string

// The formats.
const (
	PlainText Format = "text"
	JSON      Format = "json"
)

// OutputFlag registers -o, --output, which is text by default: text, json, or one of more.
func OutputFlag(flags *pflag.FlagSet, f *Format, usage string, more ...string) {
	*f = PlainText
	flags.VarP(&Choice{(*string)(f), append([]string{string(PlainText), string(JSON)}, more...)}, "output", "o", usage)
}

// AddGroup adds commands to root under a heading of its help.
func AddGroup(root *cobra.Command, heading string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: heading, Title: heading})
	for _, c := range commands {
		c.GroupID = heading
	}
	root.AddCommand(commands...)
}
