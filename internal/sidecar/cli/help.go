package cli

import (
	"cmp"
	"fmt"
	"io"
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

// writeHelp prints a command's help: its flags under their headings, 80 columns wide. Cobra's own is a template, and
// with text/template the linker keeps 2.4 MB of unused methods.
func writeHelp(w io.Writer, cmd *cobra.Command) error {
	var b strings.Builder
	b.WriteString(terminal.Wrap(cmp.Or(cmd.Long, cmd.Short+"."), width) + "\n\nUsage:\n")
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
