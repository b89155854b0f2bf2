// Package check looks a cluster over: whether lastcall can be installed, whether its webhook works, and what about the
// nodes and the injected pods cannot work. It changes nothing; the webhook is tried with a server-side dry run.
//
// Every look-up has a deadline. What the user may not see is a warning and not an error.
package check
