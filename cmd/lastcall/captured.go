package main

import (
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"github.com/lastcall-dev/lastcall/internal/pipe"
)

// The ports to which lastcall capture turns a pod's traffic, Istio's.
const (
	capturedInbound  = ":15006"
	capturedOutbound = ":15001"
)

// captureFlags are for an agent behind lastcall capture.
type captureFlags struct {
	on       bool
	in, out  string
	protocol string
	ignore   []uint
}

func (f *captureFlags) register(flags *pflag.FlagSet) {
	flags.BoolVar(&f.on, "capture", false, "take what lastcall capture turns to us: --inbound-captured "+capturedInbound+" --outbound "+capturedOutbound)
	flags.StringVar(&f.in, "inbound-captured", "", "`address` at which captured inbound connections come; they go to the app's port that they were meant for")
	flags.StringVar(&f.protocol, "inbound-captured-protocol", "auto", "auto, http or tcp")
	flags.StringVar(&f.out, "outbound", "", "`address` at which captured outbound connections come; they go where the app wanted them, to the app's very end")
	flags.UintSliceVar(&f.ignore, "ignore-inbound-port", nil, "`port` of the app whose connections are served but never count (probes, scrapes); may be repeated")
}

// proxyID is the user and group whose connections lastcall capture leaves alone,
// Istio's.
const proxyID = 1337

// inbound is the captured way in; nil without one.
func (f *captureFlags) inbound() ([]pipe.Inbound, error) {
	if f.on && os.Geteuid() != proxyID && os.Getegid() != proxyID {
		return nil, usage{fmt.Errorf("--capture: this is user %d, group %d, whose own connections are captured too and would come round for ever: run the agent as user or group %d, or, if the capture spares another (--proxy-uid), say --inbound-captured %s --outbound %s", os.Geteuid(), os.Getegid(), proxyID, capturedInbound, capturedOutbound)}
	}
	listen := f.in
	if listen == "" && f.on {
		listen = capturedInbound
	}
	if listen == "" {
		return nil, nil
	}
	protocol, err := pipe.ParseProtocol(f.protocol)
	if err != nil {
		return nil, usage{fmt.Errorf("--inbound-captured-protocol: %w", err)}
	}
	in := pipe.Inbound{Listen: listen, Protocol: protocol}
	for _, port := range f.ignore {
		if port < 1 || port > 65535 {
			return nil, usage{fmt.Errorf("--ignore-inbound-port %d: must be 1 to 65535", port)}
		}
		in.Ignore = append(in.Ignore, uint16(port))
	}
	return []pipe.Inbound{in}, nil
}

func (f *captureFlags) outboundAddress() string {
	if f.out == "" && f.on {
		return capturedOutbound
	}
	return f.out
}
