package cli

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

func example() *cobra.Command {
	root := &cobra.Command{Use: "example", Args: NoArgs, RunE: func(*cobra.Command, []string) error { return nil }}
	sub := &cobra.Command{Use: "sub", Args: NoArgs}
	var output Format
	OutputFlag(sub.Flags(), &output, "text or json")
	sub.RunE = func(*cobra.Command, []string) error { return nil }
	sub.Flags().UintSlice("ports", nil, "the app's `ports`")
	sub.Flags().Int("port", 0, "a `port`")
	sub.Flags().Duration("grace", time.Second, "a time")
	sub.Flags().Bool("native", false, "a choice")
	root.AddCommand(sub)
	Prepare(root, "1.2.3")
	return root
}

func TestErrors(t *testing.T) {
	for line, want := range map[string]string{
		"":                       "",
		"other":                  `unknown command "other"`,
		"sup":                    `unknown command "sup": did you mean sub?`,
		"sub more":               `example sub takes no arguments, got "more"`,
		"sub --ports abc":        `--ports "abc": must be whole numbers, separated by commas`,
		"sub --ports 1,-1":       `--ports "1,-1": must be whole numbers`,
		"sub --port 80a":         `--port "80a": must be a whole number`,
		"sub --grace soon":       `--grace "soon": must be a duration such as 500ms, 5s or 1m30s`,
		"sub --grace 5":          `--grace "5": must be a duration`,
		"sub --native=maybe":     `--native "maybe": must be true or false`,
		"sub --nativ":            "unknown flag: --nativ: did you mean --native?",
		"sub --other":            "unknown flag: --other",
		"--grace 5s":             "unknown flag: --grace: did you mean example sub --grace?",
		"version":                `unknown command "version": did you mean --version?`,
		"sub --output yaml":      `--output "yaml": must be text or json`,
		"sub -o json --ports 80": "",
	} {
		root := example()
		root.SetArgs(strings.Fields(line))
		root.SetOut(new(bytes.Buffer))
		root.SetErr(new(bytes.Buffer))
		err := root.Execute()
		if want == "" {
			if err != nil {
				t.Errorf("%q: %v", line, err)
			}
			continue
		}
		var usage UsageError
		if err == nil || !errors.As(err, &usage) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "strconv") {
			t.Errorf("%q: error %v, want %s", line, err, want)
		}
	}
}

func TestHelp(t *testing.T) {
	for line, want := range map[string]string{"--version": "1.2.3\n", "sub --help": "--ports ports", "--help": "completion"} {
		root := example()
		out := new(bytes.Buffer)
		root.SetArgs(strings.Fields(line))
		root.SetOut(out)
		if err := root.Execute(); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%s: %v, %s", line, err, out)
		}
		if strings.Contains(out.String(), "(default )") || strings.Contains(out.String(), "(default [])") {
			t.Errorf("%s has a default that says nothing:\n%s", line, out)
		}
	}
}
