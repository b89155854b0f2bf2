package peers

import (
	"context"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

// consul-dataplane, hashicorp/consul-dataplane, pkg/consuldp/lifecycle.go and
// pkg/envoy/proxy.go, with consul-k8s's Helm defaults
// (connectInject.sidecarProxy.lifecycle: defaultShutdownGracePeriodSeconds 30,
// defaultEnableShutdownDrainListeners true). Envoy is started without drain flags.
const consulGrace = 30 * time.Second // shutdownGracePeriodSeconds

func consul() []Peer {
	return []Peer{{
		Name: "consul-dataplane", Source: "hashicorp/consul-dataplane, pkg/consuldp/lifecycle.go",
		Words: "drains, waits shutdownGracePeriodSeconds (30 s in consul-k8s) whatever is open, then /quitquitquit",
		form:  sidecar, app: strategy.ClosesListener, grace: defaultGrace,
		atTerm: consulShutdown,
		expect: afterFixed(consulGrace),
	}}
}

// consulShutdown never counts. It ends when Envoy has.
func consulShutdown(ctx context.Context, a admin) {
	_ = a.post(ctx, "/drain_listeners?inboundonly&graceful&skip_exit")
	if sleep(ctx, consulGrace) {
		_ = a.post(ctx, "/quitquitquit")
		<-ctx.Done()
	}
}
