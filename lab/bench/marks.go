package main

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
)

// marked matches a place in a document that this program writes: from <!-- bench: NAME --> to <!-- /bench -->.
var marked = regexp.MustCompile(`(?s)(<!-- bench: ([a-z0-9-]+) -->\n)(.*?)(<!-- /bench -->)`)

// fill replaces the text of one place.
func fill(document []byte, name, text string) ([]byte, error) {
	filled := false
	document = marked.ReplaceAllFunc(document, func(place []byte) []byte {
		parts := marked.FindSubmatch(place)
		if string(parts[2]) != name {
			return place
		}
		filled = true
		return bytes.Join([][]byte{parts[1], []byte(text), parts[4]}, nil)
	})
	if !filled {
		return nil, fmt.Errorf("there is no line <!-- bench: %s --> with a <!-- /bench --> after it", name)
	}
	return document, nil
}

// fillFile replaces the text of one place of the file, which is read again: others may have changed it since.
func fillFile(path, name, text string) error {
	document, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("write the table %s: %w", name, err)
	}
	if document, err = fill(document, name, text); err != nil {
		return fmt.Errorf("write the table %s into %s: %w", name, path, err)
	}
	return os.WriteFile(path, document, 0o644)
}
