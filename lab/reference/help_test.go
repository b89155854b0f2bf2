package main

import "testing"

// TestPages has an option, a line that begins with a dot, and a paragraph that is not to be filled.
func TestPages(t *testing.T) {
	c := parse("Copy it.\n.hidden files, too\n\n  a   table\n\nUsage:\n  app copy [flags]\n\nOther flags:\n      --to folder   <where>\n\napp COMMAND --help describes a command.\n")
	c.words, c.short, c.version = []string{"app", "copy"}, "Copy it", "v1"
	if want := ".TH APP\\-COPY 1 \"\" \"app v1\"\n.SH NAME\napp\\-copy \\- Copy it\n.SH DESCRIPTION\nCopy it.\n\\&.hidden files, too\n.PP\n" +
		".nf\n  a   table\n.fi\n.SH USAGE\n.nf\n  app copy [flags]\n.fi\n.SH OTHER FLAGS\n.nf\n      \\-\\-to folder   <where>\n.fi\n"; c.man() != want {
		t.Errorf("the manual page is\n%s\nwant\n%s", c.man(), want)
	}
	if want := "## app copy\n\nCopy it.\n.hidden files, too\n\n```text\n  a   table\n```\n\n" +
		"```text\nUsage:\n  app copy [flags]\n\nOther flags:\n      --to folder   <where>\n```\n\n"; c.markdown() != want {
		t.Errorf("the chapter is\n%s\nwant\n%s", c.markdown(), want)
	}
}
