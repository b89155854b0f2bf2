package strategy

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/load"
	"github.com/lastcall-dev/lastcall/rehearsal/node"
)

const maxGrace = time.Hour

// CheckGrace returns an error for an invalid grace period.
func CheckGrace(d time.Duration) error {
	if d < time.Second || d > maxGrace || d%time.Second != 0 {
		return fmt.Errorf("is %v: must be 1s to %v in whole seconds, as terminationGracePeriodSeconds is", d, maxGrace)
	}
	return nil
}

// Begin starts the environment's node and finds its programs. It creates the folder for all logs: keep, which must be
// empty or not exist, or a temporary one. end ends all processes, and removes a temporary folder.
func (env *Env) Begin(ctx context.Context, keep string, strategies []Strategy) (dir string, end func(), err error) {
	dir, done, err := folder(keep)
	if err != nil {
		return "", nil, err
	}
	env.Node, env.Ports = node.New(), &node.Ports{}
	end = func() { env.Node.Close(); done() }
	if err := env.Programs.find(ctx, env.Proxy, strategies); err != nil {
		end()
		return "", nil, err
	}
	return dir, end, nil
}

func folder(keep string) (dir string, done func(), err error) {
	if keep == "" {
		dir, err = os.MkdirTemp("", "lastcall-rehearsal-")
		if err != nil {
			return "", nil, fmt.Errorf("create a folder for the rehearsal: %w", err)
		}
		return dir, func() { _ = os.RemoveAll(dir) }, nil
	}
	if dir, err = filepath.Abs(keep); err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return "", nil, load.OptionError{Err: fmt.Errorf("--keep-logs: %w", err)}
	}
	// Files of an earlier run would be read as this one's.
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		return "", nil, load.OptionError{Err: fmt.Errorf("--keep-logs %s: must be empty, or not exist yet", dir)}
	}
	return dir, func() {}, nil
}
