// A grpc.Server as a data plane, apart from the library's go.mod, so that importers of the library do not
// depend on gRPC. The version of the library below is the tag of the same commit; here go.work replaces it.
module github.com/lastcall-dev/lastcall/grpcdrain

go 1.25.0

require (
	github.com/lastcall-dev/lastcall v0.1.0
	go.uber.org/goleak v1.3.0
	golang.org/x/sys v0.47.0
	google.golang.org/grpc v1.84.0
)

require (
	github.com/stretchr/testify v1.12.1 // indirect
	golang.org/x/net v0.58.0 // indirect
	golang.org/x/text v0.41.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260817212433-ac3dfec99bb1 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)
