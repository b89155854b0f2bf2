package capture

import (
	"fmt"
	"io"
	"strings"
)

// DryRun writes what Install would install, in nft's syntax: `nft -f -` has the same effect, and results in what `nft
// list ruleset` shows after Install.
func DryRun(w io.Writer, c Config) error {
	var b strings.Builder
	for _, f := range families() {
		c.rules(f).write(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (f family) String() string {
	if f == ipv6 {
		return "ip6"
	}
	return "ip"
}

func (t table) write(b *strings.Builder) {
	// Create it if it is missing, so that deleting it cannot fail, and the next line makes a new one.
	fmt.Fprintf(b, "table %v %s\ndelete table %v %s\n", t.family, Name, t.family, Name)
	if len(t.chains) == 0 {
		return
	}
	fmt.Fprintf(b, "table %v %s {\n", t.family, Name)
	for i, c := range t.chains {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(b, "\tchain %s {\n", c.name)
		switch c.hook {
		case prerouting:
			b.WriteString("\t\ttype nat hook prerouting priority dstnat; policy accept;\n")
		case output:
			b.WriteString("\t\ttype nat hook output priority -100; policy accept;\n")
		}
		for _, r := range c.rules {
			fmt.Fprintf(b, "\t\t%s\n", r)
		}
		b.WriteString("\t}\n")
	}
	b.WriteString("}\n")
}

func (r rule) String() string {
	var words []string
	for _, m := range r.matches {
		words = append(words, m.String())
	}
	return strings.Join(append(words, r.do.String()), " ")
}

func (m match) String() string {
	if len(m.values) == 1 {
		return m.name + " " + m.values[0].text
	}
	var texts []string
	for _, v := range m.values {
		texts = append(texts, v.text)
	}
	return m.name + " { " + strings.Join(texts, ", ") + " }"
}

func (v verdict) String() string {
	switch {
	case v.redirect != 0:
		return fmt.Sprintf("redirect to :%d", v.redirect)
	case v.jump != "":
		return "jump " + v.jump
	}
	return "return"
}
