package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// command is a program's help about one of its commands.
type command struct {
	words    []string // such as lastcallctl, lint
	short    string
	version  string
	about    []string // paragraphs
	sections []section
}

type section struct{ heading, text string }

// describe returns the program and all of its commands, in the order of its help.
func describe(program string) ([]command, error) {
	version, err := exec.Command(program, "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("%s --version: %w", program, err)
	}
	var all []command
	var add func(short string, args ...string) error
	add = func(short string, args ...string) error {
		help, err := exec.Command(program, append(args, "--help=all")...).Output()
		if err != nil {
			return fmt.Errorf("%s %s --help=all: %w", program, strings.Join(args, " "), err)
		}
		c := parse(string(help))
		c.words, c.short = append([]string{filepath.Base(program)}, args...), short
		c.version = strings.TrimSpace(string(version))
		if short == "" {
			c.short, _, _ = strings.Cut(strings.ReplaceAll(c.about[0], "\n", " "), ". ")
			c.short = strings.TrimSuffix(c.short, ".")
		}
		all = append(all, c)
		below, err := exec.Command(program, append(append([]string{"__complete"}, args...), "")...).Output()
		if err != nil {
			return fmt.Errorf("%s: commands of %q: %w", program, args, err)
		}
		for line := range strings.Lines(string(below)) {
			name, short, isCommand := strings.Cut(strings.TrimSpace(line), "\t")
			if !isCommand || !strings.Contains(string(help), "\n  "+name+" ") || name == "help" || name == "completion" {
				continue
			}
			if err := add(short, append(args[:len(args):len(args)], name)...); err != nil {
				return err
			}
		}
		return nil
	}
	return all, add("")
}

var heading = regexp.MustCompile(`(?m)^([A-Z][A-Za-z ',-]*):\n((?: .*\n|\n)+)`)

// parse splits a help text.
func parse(help string) (c command) {
	about, rest, _ := strings.Cut(help, "\nUsage:\n")
	c.about = strings.Split(strings.TrimSpace(about), "\n\n")
	for _, m := range heading.FindAllStringSubmatch("Usage:\n"+rest, -1) {
		c.sections = append(c.sections, section{m[1], strings.TrimRight(m[2], "\n") + "\n"})
	}
	return c
}

func (c command) file() string { return strings.Join(c.words, "-") }

var markdown = strings.NewReplacer("<", "&lt;", "*", `\*`, "_", `\_`, "`", "\\`")

// markdown is a chapter for each command; the program's own begins the page.
func (c command) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s\n\n", "##"[:min(2, len(c.words))], strings.Join(c.words, " "))
	for _, p := range c.about {
		if strings.Contains("\n"+p, "\n ") {
			p = "```text\n" + p + "\n```"
		} else {
			p = markdown.Replace(p)
		}
		b.WriteString(p + "\n\n")
	}
	b.WriteString("```text\n")
	for i, s := range c.sections {
		if i > 0 {
			b.WriteString("\n")
		}
		b.WriteString(s.heading + ":\n" + s.text)
	}
	b.WriteString("```\n\n")
	return b.String()
}

var roff = strings.NewReplacer(`\`, `\e`, "-", `\-`, "\n.", "\n\\&.", "\n'", "\n\\&'")

// man is a manual page of section 1. It has no date: it depends on the program alone.
func (c command) man() string {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"%s\"\n.SH NAME\n%s \\- %s\n.SH DESCRIPTION\n",
		strings.ToUpper(roff.Replace(c.file())), roff.Replace(c.words[0]+" "+c.version),
		roff.Replace(c.file()), roff.Replace(c.short))
	for i, p := range c.about {
		if i > 0 {
			b.WriteString(".PP\n")
		}
		text := strings.TrimPrefix(roff.Replace("\n"+p), "\n")
		if strings.Contains("\n"+p, "\n ") {
			text = ".nf\n" + text + "\n.fi"
		}
		b.WriteString(text + "\n")
	}
	for _, s := range c.sections {
		text := strings.TrimPrefix(roff.Replace("\n"+s.text), "\n")
		fmt.Fprintf(&b, ".SH %s\n.nf\n%s.fi\n", strings.ToUpper(s.heading), text)
	}
	return b.String()
}
