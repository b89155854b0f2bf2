// Program is what the tests list the content of.
package main

import "github.com/spf13/pflag"

func main() { pflag.Parse() }
