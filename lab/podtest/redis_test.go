package podtest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

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
	awaitServer(t, c, func() error {
		conn, err := in.Dial(context.Background(), "tcp", address)
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = converse(conn, "PING")
		return err
	})
	return address
}

// awaitServer waits until a server answers.
func awaitServer(t *testing.T, c *container, call func() error) {
	t.Helper()
	polltest.NoError(t, func() error {
		select {
		case <-c.done:
			t.Fatalf("%s has ended: %v\n%s", c.name, c.err, c.log)
		default:
		}
		return call()
	})
}

// redisCommands sends commands on a connection of their own.
func redisCommands(address string, commands ...string) error {
	conn, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = converse(conn, commands...)
	return err
}

// converse sends Redis's inline commands one by one and returns the last answer.
func converse(conn net.Conn, commands ...string) (answer string, err error) {
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	r := bufio.NewReader(conn)
	for _, command := range commands {
		if _, err := fmt.Fprintf(conn, "%s\r\n", command); err != nil {
			return "", fmt.Errorf("%s: %w", command, err)
		}
		if answer, err = redisAnswer(r); err != nil {
			return "", fmt.Errorf("%s: %w", command, err)
		}
	}
	return answer, nil
}

// redisAnswer reads one answer of RESP, without its type; an array's parts are joined.
func redisAnswer(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	kind, rest := line[0], strings.TrimSpace(line[1:])
	n, _ := strconv.Atoi(rest)
	switch kind {
	case '-':
		return "", fmt.Errorf("redis: %s", rest)
	case '$':
		b := make([]byte, max(n, 0)+2)
		_, err := io.ReadFull(r, b)
		return string(b[:max(n, 0)]), err
	case '*':
		var parts []string
		for range n {
			part, err := redisAnswer(r)
			if err != nil {
				return "", err
			}
			parts = append(parts, part)
		}
		return strings.Join(parts, " "), nil
	}
	return rest, nil
}

func redisLength(t *testing.T, in *nettest.Namespace, address, list string) int {
	t.Helper()
	conn, err := in.Dial(context.Background(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	answer, err := converse(conn, "LLEN "+list)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(answer)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
