package conformance

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
)

var redisRotations = flag.Int("redis-rotations", 2, "terminations of TestRedisRotations")

// pipelined is how many commands one pipeline has.
const pipelined = 20

// TestRedisRotations replaces the pod in front of a Redis under go-redis and redis-cli: transactions, pipelines, BLPOP and
// subscriptions. A transaction that has begun never fails, a pipeline is executed as a whole or not at all, and no element
// that was popped is lost.
func TestRedisRotations(t *testing.T) {
	cli := peers.Need(t, "redis-cli")
	options, err := redis.ParseURL(startRedisBroker(t))
	must.Do(t, err)
	server, err := net.ResolveTCPAddr("tcp", options.Addr)
	must.Do(t, err)
	r := newRotation(t, podsBefore(t, server))
	direct := redis.NewClient(options)
	defer direct.Close()
	// Without repetitions: the test counts each failure.
	c := redis.NewClient(&redis.Options{Addr: r.address, MaxRetries: -1, ReadTimeout: patience,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}}) // its first use races
	defer c.Close()

	u := &redisUsers{T: t, direct: direct, through: c, cli: cli}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var users sync.WaitGroup
	for _, use := range []func(){u.transaction, u.transaction, u.pipeline, u.pipeline, u.shell, u.push, u.pop, u.pop} {
		users.Go(func() {
			for ctx.Err() == nil {
				use()
			}
		})
	}
	users.Go(func() { u.subscribe(ctx) })
	r.run(t, *redisRotations, &u.done)
	cancel()
	users.Wait()

	for _, key := range []string{"transactions", "pipelines", "shell"} {
		count, _ := u.executed.LoadOrStore(key, new(atomic.Int64))
		if n, err := direct.Get(t.Context(), key).Int64(); err != nil || n != count.(*atomic.Int64).Load() {
			t.Errorf("%s: Redis has executed %d, %v; the clients got replies to %d", key, n, err, count.(*atomic.Int64).Load())
		}
	}
	left, err := direct.LLen(t.Context(), "queue").Result()
	if lost := u.pushed.Load() - u.popped.Load() - left; err != nil || lost != 0 {
		t.Errorf("%d of %d elements lost, %v", lost, u.pushed.Load(), err)
	}
	if u.messages.Load() == 0 {
		t.Error("the subscriber has received no message")
	}
	t.Logf("%d rotations: %d uses, %d refused before they began, %d elements popped, %d messages; the slowest pod was gone after %s",
		*redisRotations, u.done.Load(), u.refused.Load(), u.popped.Load(), u.messages.Load(), r.longest)
}

// redisUsers use a Redis until the test stops them. What begins is not cancelled.
type redisUsers struct {
	*testing.T
	direct, through *redis.Client // without a pod, and through pods
	cli             string        // path

	executed       sync.Map // commands with a reply, by their key
	done, refused  atomic.Int64
	pushed, popped atomic.Int64
	messages       atomic.Int64 // of subscriptions
}

// counts records a use, and n of its commands as executed.
func (u *redisUsers) counts(key string, n int64) {
	count, _ := u.executed.LoadOrStore(key, new(atomic.Int64))
	count.(*atomic.Int64).Add(n)
	u.done.Add(1)
}

// transaction is one with a round trip for each command.
func (u *redisUsers) transaction() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn := u.through.Conn()
	defer conn.Close()
	if err := conn.Do(ctx, "MULTI").Err(); err != nil {
		u.refused.Add(1)
		return
	}
	for _, command := range [][]any{{"INCR", "transactions"}, {"INCR", "transactions"}, {"EXEC"}} {
		time.Sleep(5 * time.Millisecond) // the client's own work between two commands
		if err := conn.Do(ctx, command...).Err(); err != nil {
			u.Errorf("%s of a transaction that had begun: %v", command, err)
			return
		}
	}
	u.counts("transactions", 2)
}

func (u *redisUsers) pipeline() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	commands, err := u.through.Pipelined(ctx, func(p redis.Pipeliner) error {
		for range pipelined {
			p.Incr(ctx, "pipelines")
		}
		return nil
	})
	replies := int64(0)
	for _, command := range commands {
		if command.Err() == nil {
			replies++
		}
	}
	switch {
	case err == nil:
		u.counts("pipelines", replies)
	case replies > 0:
		u.Errorf("a pipeline ended after %d of %d replies: %v", replies, pipelined, err)
	default:
		u.refused.Add(1)
	}
}

// shell is a transaction of redis-cli, on a connection of its own.
func (u *redisUsers) shell() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	host, port, _ := net.SplitHostPort(u.through.Options().Addr)
	run := exec.CommandContext(ctx, u.cli, "-h", host, "-p", port)
	run.Stdin = strings.NewReader("MULTI\nINCR shell\nINCR shell\nEXEC\n")
	out, err := run.CombinedOutput()
	if err != nil || strings.Count(string(out), "QUEUED") != 2 || strings.Contains(strings.ToLower(string(out)), "err") {
		u.Errorf("redis-cli: %v\n%s", err, out)
		return
	}
	u.counts("shell", 2)
}

// push puts elements into the queue, not through a pod.
func (u *redisUsers) push() {
	if err := u.direct.RPush(context.Background(), "queue", fmt.Sprint(u.pushed.Add(1))).Err(); err != nil {
		u.Error(err)
	}
	_ = u.direct.Publish(context.Background(), "news", "text of a message").Err()
	time.Sleep(2 * time.Millisecond)
}

// pop takes an element out of the queue.
func (u *redisUsers) pop() {
	switch err := u.through.BLPop(context.Background(), time.Second, "queue").Err(); {
	case err == nil:
		u.popped.Add(1)
		u.done.Add(1)
	case !errors.Is(err, redis.Nil):
		u.refused.Add(1)
	}
}

// subscribe reads messages until the test stops it. A connection ends between two of them.
func (u *redisUsers) subscribe(ctx context.Context) {
	s := u.through.Subscribe(context.Background(), "news")
	defer s.Close()
	for ctx.Err() == nil {
		received, err := s.ReceiveTimeout(ctx, time.Second) // a cancelled context does not end a read
		m, isMessage := received.(*redis.Message)
		switch {
		case isMessage && m.Payload == "text of a message":
			u.messages.Add(1)
		case err == nil && !isMessage: // the confirmation of a subscription
		case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		case ctx.Err() == nil:
			u.Errorf("the subscription: %+v, %v", received, err)
			return
		}
	}
}
