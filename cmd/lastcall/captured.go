package main

import (
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"github.com/lastcall-dev/lastcall/internal/sidecar/capture"
	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
	"github.com/lastcall-dev/lastcall/internal/sidecar/inbound"
	"github.com/lastcall-dev/lastcall/internal/sidecar/istio"
	"github.com/lastcall-dev/lastcall/internal/sidecar/pipe"
)

// The ports to which lastcall capture redirects a pod's traffic.
var (
	capturedInbound  = fmt.Sprintf(":%d", istio.InboundPort)
	capturedOutbound = fmt.Sprintf(":%d", istio.OutboundPort)
)

// captureFlags are for an agent behind lastcall capture.
type captureFlags struct {
	on       bool
	in, out  string
	protocol string
	ignore   []uint
	check    bool
}

func (f *captureFlags) register(flags *pflag.FlagSet) {
	flags.BoolVar(&f.on, "capture", false, "carry the traffic that lastcall capture redirects: the same as --inbound-captured "+capturedInbound+" --outbound "+capturedOutbound)
	flags.StringVar(&f.in, "inbound-captured", "", "`address` that receives captured inbound connections; they are carried to their original port")
	cli.ChoiceFlag(flags, &f.protocol, "inbound-captured-protocol", "auto", []string{"auto", "http", "tcp"},
		"protocol of captured inbound connections")
	flags.StringVar(&f.out, "outbound", "", "`address` that receives captured outbound connections; they are carried to their original destination until the app has ended")
	flags.UintSliceVar(&f.ignore, "ignore-inbound-port", nil,
		"`port` of the app whose connections never hold the drain (probes, scrapes); may be repeated")
}

// inbound is the listener for captured connections; nil without one.
func (f *captureFlags) inbound() ([]pipe.Inbound, error) {
	if f.on && os.Geteuid() != istio.ProxyID && os.Getegid() != istio.ProxyID {
		return nil, usage(fmt.Errorf("--capture: user %d, group %d is itself captured, so that connections would loop: run the agent as user or group %d or, if lastcall capture excludes another one (--proxy-uid), use --inbound-captured %s --outbound %s", os.Geteuid(), os.Getegid(), istio.ProxyID, capturedInbound, capturedOutbound))
	}
	listen := f.in
	if listen == "" && f.on {
		listen = capturedInbound
	}
	if listen == "" {
		return nil, nil
	}
	protocol, err := inbound.Protocol(f.protocol)
	if err != nil {
		return nil, usage(fmt.Errorf("--inbound-captured-protocol: %w", err))
	}
	ignore, err := ports("ignore-inbound-port", f.ignore)
	return []pipe.Inbound{{Listen: listen, Protocol: protocol, Ignore: ignore}}, err
}

// verify reports an error if the traffic is to be redirected already and is not, also as the container's termination
// message.
func (f *captureFlags) verify(terminationLog string) error {
	if !f.check {
		return nil
	}
	err := capture.Check()
	if err == nil {
		return nil
	}
	err = fmt.Errorf("%s: %w; the node's network plugin lastcall-cni did not set the rules when the pod was made: see whether the DaemonSet lastcall-cni is ready on this node, then delete the pod, so that a new one is made (docs/cni.md)", capture.NotCaptured, err)
	if terminationLog != "" {
		_ = os.WriteFile(terminationLog, []byte(err.Error()), 0o644)
	}
	return err
}

// ports checks the values of a flag.
func ports(flag string, values []uint) (out []uint16, err error) {
	for _, port := range values {
		if port < 1 || port > 65535 {
			return nil, usage(fmt.Errorf("--%s %d: must be 1 to 65535", flag, port))
		}
		out = append(out, uint16(port))
	}
	return out, nil
}

func (f *captureFlags) outboundAddress() string {
	if f.out == "" && f.on {
		return capturedOutbound
	}
	return f.out
}
