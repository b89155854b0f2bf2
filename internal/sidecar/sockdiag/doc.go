// Package sockdiag reads the kernel's table of TCP sockets over netlink (sock_diag(7)), filtered in the kernel by local
// port, and receives a report when one of them is destroyed. It also reads the counters of a network namespace.
//
// It needs no capability: every process may read the sockets of its own network namespace. To enter another one takes
// CAP_SYS_ADMIN. The cost depends on the sockets of the machine, not on a proxy; Pacer bounds it for many readers.
package sockdiag
