// Package signals receives the signals of a program that drains: those that stop it, restart it and reload its
// certificates.
package signals
