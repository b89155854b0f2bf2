package strategy

import (
	"context"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/node"
)

// netstatLoop is the preStop that people gave their proxies before there was
// EXIT_ON_ZERO_ACTIVE_CONNECTIONS:
//
//	while [ $(netstat -plunt | grep tcp | grep -v envoy | wc -l | xargs) -ne 0 ]; do sleep 1; done
//
// It looks at listening sockets (-l), so it takes an app that has closed its own for one that has
// finished. In a pod netstat sees the pod's sockets; here they are told by
// the processes that hold them.
func netstatLoop(app *node.Process) node.Hook {
	return node.Func(func(ctx context.Context) error {
		for {
			n, err := app.Listening()
			if err != nil {
				return err
			}
			if n == 0 {
				return nil
			}
			if err := node.Sleep(time.Second).Run(ctx); err != nil {
				return err
			}
		}
	})
}
