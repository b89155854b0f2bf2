// Package hall is a hall of servers: how popular stacks end by default, and the line that repairs it. Each row is a small app with a
// termination bug, or a default that loses requests, and its twin without it.
package hall
