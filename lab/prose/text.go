package main

import (
	"bytes"
	"go/scanner"
	"go/token"
	"path"
	"regexp"
	"strings"
)

// passage is a piece of prose and the line of its file on which it begins.
type passage struct {
	line int
	text string
}

// passages are the prose of a file, nil for files that have none. Line breaks stay where they are in the file, so that
// a place in a passage leads to its line.
func passages(name string, content []byte) []passage {
	switch {
	case strings.HasSuffix(name, ".go"):
		return goPassages(content)
	case strings.HasSuffix(name, ".md"):
		return []passage{{1, markdownProse(string(content))}}
	case bytes.IndexByte(content, 0) >= 0 || isData(name):
		return nil
	}
	return []passage{{1, unmarked(string(content))}}
}

// isData reports whether a file is not written by hand, or is other people's.
func isData(name string) bool {
	switch path.Ext(name) {
	case ".sum", ".mod", ".work", ".pem", ".svg":
		return true
	}
	return path.Base(name) == "LICENSE"
}

// goPassages are a Go file's comments, adjacent lines as one passage, and its string literals of more than one word.
func goPassages(content []byte) (found []passage) {
	files := token.NewFileSet()
	file := files.AddFile("", files.Base(), len(content))
	var s scanner.Scanner
	s.Init(file, content, func(token.Position, string) {}, scanner.ScanComments)
	last := -1 // the line on which the previous comment ended
	for {
		pos, kind, literal := s.Scan()
		line := file.Line(pos)
		switch kind {
		case token.EOF:
			return found
		case token.COMMENT:
			text := unmarked(literal)
			if line == last+1 && strings.HasPrefix(literal, "//") {
				found[len(found)-1].text += "\n" + text
			} else {
				found = append(found, passage{line, text})
			}
			last = line + strings.Count(literal, "\n")
			continue
		case token.STRING:
			if strings.Contains(literal, " ") {
				found = append(found, passage{line, strings.ReplaceAll(literal, `\n`, "  ")})
			}
		}
		if kind != token.SEMICOLON || literal != "\n" {
			last = -1
		}
	}
}

// identifierPassages are a Go file's identifiers, the words of each apart: awaitTold is "await Told".
func identifierPassages(content []byte) (found []passage) {
	files := token.NewFileSet()
	file := files.AddFile("", files.Base(), len(content))
	var s scanner.Scanner
	s.Init(file, content, func(token.Position, string) {}, 0)
	for {
		pos, kind, literal := s.Scan()
		switch kind {
		case token.EOF:
			return found
		case token.IDENT:
			found = append(found, passage{file.Line(pos), capitalised.ReplaceAllString(literal, " $0 ")})
		}
	}
}

var capitalised = regexp.MustCompile(`[A-Z][a-z]+`)

var commentSigns = regexp.MustCompile(`(?m)^[ \t]*(//|#)+`)

// unmarked is a text without the signs that begin a comment's lines.
func unmarked(text string) string { return commentSigns.ReplaceAllString(text, "") }

var inlineCode = regexp.MustCompile("`[^`\n]*`|\\]\\([^)\n]*\\)")

// markdownProse is a document with its code and its links' addresses blanked, line by line.
func markdownProse(text string) string {
	var out strings.Builder
	fenced, blank, list := false, true, false
	for line := range strings.Lines(text) {
		trimmed := strings.TrimSpace(line)
		indented := strings.HasPrefix(line, "    ") && (blank && !list)
		switch {
		case strings.HasPrefix(trimmed, "```"):
			fenced = !fenced
			out.WriteByte('\n')
		case fenced || indented:
			out.WriteByte('\n')
		default:
			blank := func(code string) string { return strings.Repeat("`", len(code)) }
			out.WriteString(inlineCode.ReplaceAllStringFunc(line, blank))
		}
		if !indented {
			blank = trimmed == ""
		}
		if trimmed != "" && !strings.HasPrefix(line, " ") {
			list = strings.HasPrefix(line, "- ") || strings.HasPrefix(line, "* ") || line[0] >= '0' && line[0] <= '9'
		}
	}
	return out.String()
}
