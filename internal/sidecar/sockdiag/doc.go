// Package sockdiag reads the kernel's table of TCP sockets over netlink (sock_diag(7)), filtered in the kernel by local
// port, and receives a report when one of them is destroyed.
//
// It needs no capability: every process may read the sockets of its own network namespace. The cost depends on the
// sockets of the namespace, not on a proxy.
package sockdiag
