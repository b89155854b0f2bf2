package cli

import (
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// group is a range of a command's flags, in the order of their registration. Annotations of the flags would cost every
// sidecar half a megabyte.
type group struct {
	heading  string
	from, to int
}

// groups are the headings of --help, by command.
var groups = map[*pflag.FlagSet][]group{}

// Group registers flags under a heading of --help.
func Group(flags *pflag.FlagSet, heading string, register func(*pflag.FlagSet)) {
	flags.SortFlags = false
	from := countFlags(flags)
	register(flags)
	groups[flags] = append(groups[flags], group{heading, from, countFlags(flags)})
}

// Heading is the heading of a flag; empty for none.
func Heading(flags *pflag.FlagSet, name string) (heading string) {
	i := 0
	flags.VisitAll(func(f *pflag.Flag) {
		for _, g := range groups[flags] {
			if f.Name == name && g.from <= i && i < g.to {
				heading = g.heading
			}
		}
		i++
	})
	return heading
}

func countFlags(flags *pflag.FlagSet) (n int) {
	flags.VisitAll(func(*pflag.Flag) { n++ })
	return n
}

// Choice is the value of a flag that must be one of a few words. Shells complete them.
type Choice struct {
	to      *string
	allowed []string
}

// ChoiceFlag registers a flag whose value must be one of allowed. The default value need not be among them.
func ChoiceFlag(flags *pflag.FlagSet, to *string, name, value string, allowed []string, usage string) {
	*to = value
	flags.Var(&Choice{to, allowed}, name, usage)
}

func (c *Choice) String() string {
	if c.to == nil {
		return ""
	}
	return *c.to
}

// Set refuses a value that is not allowed.
func (c *Choice) Set(text string) error {
	if !slices.Contains(c.allowed, text) {
		return errors.New("must be " + Or(c.allowed))
	}
	*c.to = text
	return nil
}

// Type is the placeholder in --help.
func (c *Choice) Type() string { return strings.Join(c.allowed, "|") }

// Values are the words that shells complete.
func (c *Choice) Values() []string { return c.allowed }

// Text is the value of a flag that something else parses.
type Text struct {
	Text   string
	Kind   string   // the placeholder in --help
	Known  []string // values that shells complete
	Preset string   // the default that --help shows
	IsBool bool     // the flag alone means true
}

// TextFlag registers a flag whose text something else parses.
func TextFlag(flags *pflag.FlagSet, t *Text, name, usage string) {
	f := flags.VarPF(t, name, "", usage)
	f.DefValue = t.Preset
	if t.IsBool {
		f.NoOptDefVal = "true"
	}
}

func (t *Text) String() string { return t.Text }

// Set keeps the text.
func (t *Text) Set(text string) error { t.Text = text; return nil }

// Type is the placeholder in --help.
func (t *Text) Type() string { return t.Kind }

// Values are the words that shells complete.
func (t *Text) Values() []string { return t.Known }

// Or joins words as in "a, b or c".
func Or(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// complete lets shells complete the flags of a command: words for choices, paths for files and folders, nothing
// for the rest.
func complete(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if v, ok := f.Value.(interface{ Values() []string }); ok && len(v.Values()) > 0 {
			_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(v.Values(), cobra.ShellCompDirectiveNoFileComp))
			return
		}
		switch kind, _ := pflag.UnquoteUsage(f); kind {
		case "file", "FILE", "program", "path":
		case "folder":
			_ = cmd.MarkFlagDirname(f.Name)
		default:
			_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.NoFileCompletions)
		}
	})
	if cmd.ValidArgsFunction == nil && !cmd.DisableFlagsInUseLine {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	for _, below := range cmd.Commands() {
		complete(below)
	}
}
