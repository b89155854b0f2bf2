// Package plan shows how the pods of a manifest will end, as a timeline: for a terminal, as SVG, HTML and JSON. It also
// shows what a change of the manifest changes. The rules are package termination's.
package plan
