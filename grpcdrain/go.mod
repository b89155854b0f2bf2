// A grpc.Server as a data plane, apart from the project's go.mod, so that importers of the library do not
// depend on gRPC.
module github.com/lastcall-dev/lastcall/grpcdrain

go 1.26.0

replace github.com/lastcall-dev/lastcall => ..

require (
	github.com/lastcall-dev/lastcall v0.0.0
	go.uber.org/goleak v1.3.0
	golang.org/x/sys v0.49.0
	google.golang.org/grpc v1.85.0
)

require (
	github.com/stretchr/testify v1.12.1 // indirect
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260817212433-ac3dfec99bb1 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)
