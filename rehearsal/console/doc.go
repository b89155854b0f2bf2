// Package console writes for people: colours on a terminal, a line of progress, aligned columns.
package console
