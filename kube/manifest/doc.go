// Package manifest reads the manifests that users give to a command: files, folders, patterns and standard input, with
// any number of YAML documents, JSON and Lists in them, such as the output of kustomize and Helm.
//
// A text that cannot be read is a Problem with its file and line; the rest of the input is read nevertheless. All sizes
// have bounds. Objects know the line of each of their fields.
package manifest
