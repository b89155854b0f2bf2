package podtest

import (
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
)

// startRedis starts a Redis that keeps nothing on disk, and returns its address.
func startRedis(t *testing.T, in *nettest.Namespace) string {
	t.Helper()
	path, address := peers.Need(t, "redis-server"), in.TCP4(6379)
	// By its own name: Debian's is a link to another program that uses its name to select its role.
	c := launch(t, in, "redis", nil, &exec.Cmd{Path: path, Dir: t.TempDir(), Args: []string{
		"redis-server", "--bind", in.IPv4.String(), "--port", "6379", "--save", "", "--appendonly", "no", "--protected-mode", "no",
	}})
	polltest.NoError(t, func() error {
		select {
		case <-c.done:
			t.Fatalf("Redis has ended: %v\n%s", c.err, c.log)
		default:
		}
		_, err := redisCommands(in, address, "PING")
		return err
	})
	return address
}

// redisCommands sends commands on a connection of their own, from a namespace or from where we are, and returns the last
// answer.
func redisCommands(in *nettest.Namespace, address string, commands ...string) (answer any, err error) {
	const limit = 5 * time.Second
	dial := (&net.Dialer{Timeout: limit}).DialContext
	if in != nil {
		dial = in.Dial
	}
	conn, err := redis.Dial("tcp", address, redis.DialContextFunc(dial), redis.DialReadTimeout(limit), redis.DialWriteTimeout(limit))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	for _, command := range commands {
		name, rest, _ := strings.Cut(command, " ")
		if answer, err = conn.Do(name, redis.Args{}.AddFlat(strings.Fields(rest))...); err != nil {
			return nil, fmt.Errorf("%s: %w", command, err)
		}
	}
	return answer, nil
}

func redisLength(t *testing.T, in *nettest.Namespace, address, list string) int {
	t.Helper()
	n, err := redis.Int(redisCommands(in, address, "LLEN "+list))
	must.Do(t, err)
	return n
}
