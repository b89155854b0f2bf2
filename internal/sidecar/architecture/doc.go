// Package architecture holds one test: that the folders of the project import each other in one direction only, and
// that the binary for pods stays small. It has no code of its own.
package architecture
