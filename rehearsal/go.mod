module github.com/lastcall-dev/lastcall/rehearsal

go 1.26.0

require (
	github.com/rogpeppe/go-internal v1.16.0
	go.uber.org/goleak v1.3.0
	golang.org/x/sys v0.49.0
)

require (
	github.com/mdlayher/netlink v1.11.2 // indirect
	github.com/stretchr/testify v1.12.1 // indirect
	golang.org/x/net v0.60.0 // indirect
)

require (
	github.com/google/go-cmp v0.7.0 // indirect
	github.com/lastcall-dev/lastcall v0.0.0
	github.com/mdlayher/socket v0.6.0 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/tools v0.51.0 // indirect
)

replace github.com/lastcall-dev/lastcall => ..

replace github.com/lastcall-dev/lastcall/gateway => ../gateway
