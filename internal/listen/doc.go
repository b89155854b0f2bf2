// Package listen has TCP listeners that take IPv4 and IPv6, and that can stop without resetting a
// client, and resume. It imports nothing but the standard library, and works on every system.
package listen
