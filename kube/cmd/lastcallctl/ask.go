package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
)

// canAsk refuses a change that is not confirmed by --yes, unless a person can answer a question.
func canAsk(cmd *cobra.Command, yes bool, what string) error {
	if file, isFile := cmd.InOrStdin().(*os.File); !yes && !(isFile && terminal.Is(file)) {
		return fmt.Errorf("%s needs a confirmation, and standard input is not a terminal: add --yes", what)
	}
	return nil
}

// ask asks a person; any answer but y or yes means no. The end of ctx ends the wait for the answer.
func ask(ctx context.Context, in io.Reader, out io.Writer, question string) (bool, error) {
	fmt.Fprintf(out, "%s [y/N] ", question)
	answer := make(chan string, 1)
	go func() { // ends with the program, as a read of a terminal cannot be cancelled
		text, _ := bufio.NewReader(in).ReadString('\n')
		answer <- strings.ToLower(strings.TrimSpace(text))
	}()
	select {
	case text := <-answer:
		return text == "y" || text == "yes", nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}
