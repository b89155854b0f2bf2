// Program is a program whose content the tests list. It prints its capabilities and whether it can gain any.
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"
)

func main() {
	pflag.Parse()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		fmt.Fprintln(os.Stderr, "program:", err)
		os.Exit(1)
	}
	for line := range strings.Lines(string(status)) {
		if name, _, _ := strings.Cut(line, ":"); name == "CapPrm" || name == "CapEff" || name == "NoNewPrivs" {
			fmt.Println(strings.Join(strings.Fields(line), " "))
		}
	}
}
