package strategy

import (
	"context"
	"errors"
	"time"

	"github.com/lastcall-dev/lastcall/internal/poll"
	"github.com/lastcall-dev/lastcall/rehearsal/node"
)

// netstatLoop is the preStop hook that proxies had before EXIT_ON_ZERO_ACTIVE_CONNECTIONS existed:
//
//	while [ $(netstat -plunt | grep tcp | grep -v envoy | wc -l | xargs) -ne 0 ]; do sleep 1; done
//
// It counts listening sockets (-l), so an app that has closed its own looks finished. In a pod netstat sees the pod's
// sockets; here the owning process identifies them.
func netstatLoop(app *node.Process) node.Hook {
	return node.Func(func(ctx context.Context) (err error) {
		n := 0
		ended := poll.Until(ctx, time.Second, func() bool {
			n, err = app.Listening()
			return err != nil || n == 0
		})
		return errors.Join(err, ended)
	})
}
