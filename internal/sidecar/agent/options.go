package agent

import (
	"log/slog"
	"os/exec"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/envoy"
	"github.com/lastcall-dev/lastcall/internal/sidecar/meshconfig"
	"github.com/lastcall-dev/lastcall/internal/sidecar/pipe"
	"github.com/lastcall-dev/lastcall/internal/sidecar/systemd"
	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
)

// Options of an agent, by the part that needs them.
type Options struct {
	Settings *meshconfig.Settings
	Log      *slog.Logger
	Terminal *terminal.Terminal // where a person watches; may be nil

	Pipe     pipe.Config    // OwnPorts, Log and AppStarts are the agent's
	Envoy    *envoy.Options // if set, the data plane instead of the pipe, with its own inbound listeners
	Outbound string         // host:port that receives captured outbound connections; empty: none
	Admin    Admin          // Envoy's admin API for the pipe; a real Envoy has its own
	Status   StatusOptions
	Pod      Pod
	App      AppOptions

	Stop     Stop
	Notifier *systemd.Notifier // nil: no service manager

	TerminationLog string // file for the container's termination message; empty: none
	FailOnCut      bool   // end with CodeCut when requests or connections were cut
}

// StatusOptions configure the status port, which is Settings.StatusPort.
type StatusOptions struct {
	Address string // host; empty: all addresses

	// HookToken is the TOKEN of GET /wait/TOKEN, the preStop hook of app containers by httpGet, which arrives from the
	// node. SidecarToken is that of the sidecar's own hook. Empty: no such path.
	HookToken, SidecarToken string

	Probes   Probes                 // the app's, and hooks, that an injector redirected to the status port; nil: none
	Metrics  []prometheus.Collector // scraped in addition to the agent's own
	Profiles bool                   // serve Go's profiles, for requests from this pod
}

// Pod describes the agent's pod.
type Pod struct {
	Sidecar       Sidecar // kind of container in which the agent runs
	AppContainers uint    // 0 means one
	ExitWithApp   bool    // end a sidecar when the app has exited by itself, as a job does
}

// AppOptions are for an app that the agent starts.
type AppOptions struct {
	Command    *exec.Cmd      // starts with the agent and is stopped after the drain, see end; may be nil
	StopSignal syscall.Signal // 0: the one that stops the agent, but SIGTERM after Ctrl-C and the end of a terminal

	SignalChildOnly bool // the command's process alone gets the stop signal; what it has started may outlive the agent
}

// Stop are the signals to the agent.
type Stop struct {
	Requests *drain.Requests       // gets them, and all else that begins or ends a drain; nil: the agent makes its own
	First    func() syscall.Signal // the first signal that arrived, 0 for none yet; nil: SIGTERM
	Reload   <-chan struct{}       // makes the agent read its certificates again
}

// Admin configures Envoy's admin API for the pipe.
type Admin struct {
	Address  string // host:port; empty: none
	Optional bool   // start without it if the address is not available
}
