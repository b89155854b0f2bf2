// Package http1test has messages of HTTP/1.1 that two parsers may read differently: request smuggling.
package http1test

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
)

//go:embed smuggling.txt
var text string

// Case is a client's input, and the output that an app behind the proxy must see.
type Case struct {
	Name, Bytes string
	Seen        []string // "METHOD TARGET BODYBYTES"
	Status      int      // of the response that refuses it; 0: it is not refused
}

// Cases returns the cases of smuggling.txt.
func Cases() (out []Case) {
	for _, part := range strings.Split(text, "\n== ")[1:] {
		name, rest, _ := strings.Cut(part, "\nwant: ")
		want, escaped, _ := strings.Cut(rest, "\n")
		c := Case{Name: name}
		for _, one := range strings.Split(want, "; ") {
			if status, err := strconv.Atoi(one); err == nil {
				c.Status = status
			} else {
				c.Seen = append(c.Seen, one)
			}
		}
		escaped = strings.ReplaceAll(strings.ReplaceAll(escaped, "\n", ""), `"`, `\"`)
		var err error
		if c.Bytes, err = strconv.Unquote(`"` + escaped + `"`); err != nil {
			panic(fmt.Sprintf("http1test: %s: %v", name, err))
		}
		out = append(out, c)
	}
	return out
}
