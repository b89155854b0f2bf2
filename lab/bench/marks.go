package main

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
)

// marked matches a place in a document that this program writes: from <!-- bench: NAME --> to <!-- /bench -->.
var marked = regexp.MustCompile(`(?s)(<!-- bench: ([a-z0-9-]+) -->\n)(.*?)(<!-- /bench -->)`)

// fillFile replaces the text of one place of the file, which is read again: others may have changed it since.
func fillFile(path, name, text string) error {
	document, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("write the table %s: %w", name, err)
	}
	isFilled := false
	document = marked.ReplaceAllFunc(document, func(place []byte) []byte {
		parts := marked.FindSubmatch(place)
		if string(parts[2]) != name {
			return place
		}
		isFilled = true
		return bytes.Join([][]byte{parts[1], []byte(text), parts[4]}, nil)
	})
	if !isFilled {
		return fmt.Errorf("write the table %s into %s: there is no line <!-- bench: %[1]s --> with a <!-- /bench --> after it",
			name, path)
	}
	return os.WriteFile(path, document, 0o644)
}
