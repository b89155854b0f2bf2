package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
)

// width is that of help texts, in columns.
const width = 80

// indent is where the descriptions of flags begin.
const indent = 28

// Variable is an environment variable that a command reads.
type Variable struct {
	Group   string
	Name    string
	Default string
	Flag    string // overrides it; without dashes, empty for none
	Usage   string // shown if there is no flag, which has its own
}

// environments are the variables of commands, by command.
var environments = map[*cobra.Command]func() (intro string, variables []Variable){}

// Environment adds a section about variables to a command's help.
func Environment(cmd *cobra.Command, describe func() (intro string, variables []Variable)) {
	environments[cmd] = describe
}

// common are the flags that most users of a command set, by command.
var common = map[*cobra.Command][]string{}

// Common names the flags that --help describes, each in one clause, of a command with many; --help=all describes all.
func Common(cmd *cobra.Command, flags ...string) { common[cmd] = flags }

// helpFlag is the value of --help: alone, or all. For cobra it is a bool.
type helpFlag struct{ isSet, isAll bool }

func (h *helpFlag) String() string { return strconv.FormatBool(h.isSet) }

// Type is a method that cobra requires of a flag.
func (h *helpFlag) Type() string { return "bool" }

// Set accepts all and true.
func (h *helpFlag) Set(text string) error {
	if text != "true" && text != "all" {
		return errors.New("must be all")
	}
	h.isSet, h.isAll = true, h.isAll || text == "all"
	return nil
}

// registerHelp gives a command and those below it --help.
func registerHelp(cmd *cobra.Command) {
	usage := "describe the command"
	if common[cmd] != nil {
		usage += "; =all: with all of its flags"
	}
	cmd.Flags().VarPF(new(helpFlag), "help", "h", usage).NoOptDefVal = "true"
	for _, below := range cmd.Commands() {
		registerHelp(below)
	}
}

// isShort reports whether a command's help is that of its common flags.
func isShort(cmd *cobra.Command) bool {
	f := cmd.Flags().Lookup("help")
	if f == nil || common[cmd] == nil {
		return false
	}
	h, ok := f.Value.(*helpFlag)
	return ok && !h.isAll
}

// paragraphs are how many of a command's description --help has, besides the exit codes, when it does not describe all
// flags.
const paragraphs = 2

// writeHelp prints a command's help: its flags under their headings, 80 columns wide. Cobra's own is a template, and
// with text/template the linker keeps 2.4 MB of unused methods.
func writeHelp(w io.Writer, cmd *cobra.Command) error {
	var b strings.Builder
	long, isShort := cmp.Or(cmd.Long, cmd.Short+"."), isShort(cmd)
	if all := strings.Split(long, "\n\n"); isShort && len(all) > paragraphs {
		some := all[:paragraphs:paragraphs]
		if last := all[len(all)-1]; strings.HasPrefix(last, "Exit code:") {
			some = append(some, last)
		}
		long = strings.Join(some, "\n\n")
	}
	b.WriteString(terminal.Wrap(long, width) + "\n\nUsage:\n")
	if cmd.Runnable() && (!cmd.HasAvailableSubCommands() || cmd.HasParent()) {
		b.WriteString("  " + indented(terminal.Wrap(cmd.UseLine(), width-6), "      ") + "\n")
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "  %s COMMAND [flags]\n", cmd.CommandPath())
	}
	if len(cmd.Aliases) > 0 {
		fmt.Fprintf(&b, "\nAliases:\n  %s\n", strings.Join(cmd.Aliases, ", "))
	}
	if cmd.Example != "" {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", cmd.Example)
	}
	if cmd.HasAvailableSubCommands() {
		writeCommands(&b, cmd)
	}
	if isShort {
		writeCommon(&b, cmd)
		_, err := io.WriteString(w, b.String())
		return err
	}
	writeFlags(&b, cmd)
	if describe := environments[cmd]; describe != nil {
		writeEnvironment(&b, describe)
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\n%s COMMAND --help describes a command.\n", cmd.CommandPath())
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func writeCommands(b *strings.Builder, cmd *cobra.Command) {
	section := func(heading, id string) {
		first := true
		for _, c := range cmd.Commands() {
			if !c.IsAvailableCommand() && c.Name() != "help" || c.GroupID != id {
				continue
			}
			if first {
				fmt.Fprintf(b, "\n%s\n", heading)
				first = false
			}
			b.WriteString(entry("  "+c.Name(), c.Short, 18))
		}
	}
	for _, g := range cmd.Groups() {
		section(g.Title, g.ID)
	}
	heading := "Commands:"
	if len(cmd.Groups()) > 0 {
		heading = "Other commands:"
	}
	section(heading, "")
}

// writeCommon prints the common flags, each with the first clause of its description.
func writeCommon(b *strings.Builder, cmd *cobra.Command) {
	var some []*pflag.Flag
	for _, name := range common[cmd] {
		f := *cmd.Flags().Lookup(name)
		for _, end := range []string{"; ", ": ", ". ", " ("} {
			f.Usage, _, _ = strings.Cut(f.Usage, end)
		}
		some = append(some, &f)
	}
	writeGroup(b, "Common flags", some)
	n := 0
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			n++
		}
	})
	text := fmt.Sprintf("%s --help=all describes all %d flags", cmd.CommandPath(), n)
	if environments[cmd] != nil {
		text += ", and the environment variables that do the same"
	}
	fmt.Fprintf(b, "\n%s.\n", terminal.Wrap(text, width-1))
}

// writeFlags prints the flags, those without a heading last.
func writeFlags(b *strings.Builder, cmd *cobra.Command) {
	var all []*pflag.Flag
	cmd.Flags().VisitAll(func(f *pflag.Flag) { all = append(all, f) })
	for _, g := range groups[cmd.Flags()] {
		writeGroup(b, g.heading, all[g.from:g.to])
		for i := g.from; i < g.to; i++ {
			all[i] = nil
		}
	}
	heading := "Flags"
	if len(groups[cmd.Flags()]) > 0 {
		heading = "Other flags"
	}
	writeGroup(b, heading, all)
}

func writeGroup(b *strings.Builder, heading string, flags []*pflag.Flag) {
	shown := false
	for _, f := range flags {
		if f == nil || f.Hidden {
			continue
		}
		if !shown {
			fmt.Fprintf(b, "\n%s:\n", heading)
			shown = true
		}
		kind, usage := pflag.UnquoteUsage(f)
		name := "      --" + f.Name
		if f.Shorthand != "" {
			name = "  -" + f.Shorthand + ", --" + f.Name
		}
		if kind != "" && f.Value.Type() != "bool" {
			name += " " + kind
		}
		b.WriteString(entry(name, usage+shownDefault(f), indent))
	}
}

// shownDefault is a flag's default, unless the usage already contains it.
func shownDefault(f *pflag.Flag) string {
	switch f.DefValue {
	case "", "[]", "false":
		return ""
	case "0", "0s":
		if _, isText := f.Value.(*Text); !isText {
			return "" // the usage explains 0
		}
	}
	if strings.Contains(f.Usage, "(default") {
		return ""
	}
	return " (default " + f.DefValue + ")"
}

func writeEnvironment(b *strings.Builder, describe func() (string, []Variable)) {
	intro, variables := describe()
	fmt.Fprintf(b, "\nEnvironment:\n  %s\n", indented(terminal.Wrap(intro, width-2), "  "))
	group := ""
	for _, v := range variables {
		if v.Group != group {
			group = v.Group
			fmt.Fprintf(b, "\n  %s:\n", group)
		}
		text := v.Usage
		if v.Flag != "" {
			text = "--" + v.Flag
		}
		if v.Default != "" {
			text += " (default " + v.Default + ")"
		}
		b.WriteString(entry("    "+v.Name, text, 40))
	}
}

// entry is a name and its description, which begins at a column and, after a long name, on a line of its own.
func entry(name, text string, column int) string {
	lines := strings.Split(terminal.Wrap(text, width-column), "\n")
	var b strings.Builder
	b.WriteString(name)
	if pad := column - utf8.RuneCountInString(name); pad >= 2 {
		b.WriteString(strings.Repeat(" ", pad) + lines[0] + "\n")
		lines = lines[1:]
	} else {
		b.WriteString("\n")
	}
	for _, line := range lines {
		b.WriteString(strings.Repeat(" ", column) + line + "\n")
	}
	return b.String()
}

// indented indents all lines but the first.
func indented(text, by string) string { return strings.ReplaceAll(text, "\n", "\n"+by) }
