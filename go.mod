// The library: lastcall, drain, httpdrain and what they need. It requires golang.org/x/net alone, in the latest version for
// the Go version below, which is the older one of the two that the Go team supports: both are an importer's, too.
module github.com/lastcall-dev/lastcall

go 1.25.0

require golang.org/x/net v0.58.0

require golang.org/x/text v0.41.0 // indirect
