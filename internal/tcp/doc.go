// Package tcp has what listeners of more than one package need: to take IPv4 and IPv6 at
// once, and to be emptied before they are closed.
package tcp
