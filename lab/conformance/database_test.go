package conformance

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
)

var (
	// rotations is how many pods in front of a database end one after another; BENCHMARKS.md has the figures of 50.
	rotations = flag.Int("rotations", 3, "terminations of TestPostgresRotations")

	compareDatabases = flag.Bool("compare-databases", false, "TestPostgresRotations also with pgbouncer and HAProxy, and each without lastcall")
)

// TestPostgresRotations replaces what serves PostgreSQL under a pool of Go's pgx, with transactions of 20 ms back to back,
// and pgbench -C. With a pod in front a transaction that has begun never fails, and no pod waits for its last call.
func TestPostgresRotations(t *testing.T) {
	for _, kind := range []struct {
		name    string
		options string // of the pool
		start   func(t *testing.T) func() *instance
		jdbc    bool // a pool of Java's HikariCP instead
		alone   bool // without lastcall: failures are counted
	}{
		{name: "PostgreSQL", start: func(t *testing.T) func() *instance { return podsBefore(t, startTCPPostgres(t)) }},
		{name: "HikariCP", jdbc: true, start: func(t *testing.T) func() *instance {
			return podsBefore(t, startTCPPostgres(t))
		}},
		{name: "pgbouncer", options: unprepared, start: func(t *testing.T) func() *instance {
			return podsBefore(t, address(t, startPgbouncer(t, startTCPPostgres(t), syscall.SIGTERM)))
		}},
		{name: "HAProxy", start: func(t *testing.T) func() *instance {
			return podsBefore(t, address(t, startHAProxy(t, startTCPPostgres(t))))
		}},
		{name: "PostgreSQL alone, SIGTERM", alone: true, start: func(t *testing.T) func() *instance {
			return postgresInTurns(t, syscall.SIGTERM)
		}},
		{name: "PostgreSQL alone, SIGINT", alone: true, start: func(t *testing.T) func() *instance {
			return postgresInTurns(t, syscall.SIGINT)
		}},
		{name: "pgbouncer alone, SIGTERM", options: unprepared, alone: true, start: func(t *testing.T) func() *instance {
			server := startTCPPostgres(t)
			return func() *instance { return startPgbouncer(t, server, syscall.SIGTERM) }
		}},
		{name: "pgbouncer alone, SIGINT", options: unprepared, alone: true, start: func(t *testing.T) func() *instance {
			server := startTCPPostgres(t)
			return func() *instance { return startPgbouncer(t, server, syscall.SIGINT) }
		}},
		{name: "HAProxy alone, SIGUSR1", alone: true, start: func(t *testing.T) func() *instance {
			server := startTCPPostgres(t)
			return func() *instance { return startHAProxy(t, server) }
		}},
	} {
		if kind.name == "PostgreSQL" || *compareDatabases {
			t.Run(kind.name, func(t *testing.T) { rotatePostgres(t, kind.start(t), kind.options, kind.jdbc, kind.alone) })
		}
	}
}

// unprepared is for pgbouncer with transaction pooling before 1.21.
const unprepared = "&default_query_exec_mode=exec"

func rotatePostgres(t *testing.T, start func() *instance, options string, jdbc, alone bool) {
	pgbench := peers.Need(t, "pgbench")
	r := newRotation(t, start)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var done, refused, failed, runs, broken atomic.Int64 // the latter two are pgbench's
	count := func(began bool, err error) {
		switch {
		case err == nil:
			done.Add(1)
		case began:
			failed.Add(1)
			if !alone {
				t.Errorf("a transaction that had begun: %v", err)
			}
		default:
			refused.Add(1)
		}
	}
	var workers sync.WaitGroup
	if jdbc {
		java := javaProgram(t, "Pool", "jdbc:postgresql://"+r.address+"/postgres?user=app&sslmode=disable")
		workers.Go(func() { usePool(ctx, t, java, count) })
	} else {
		pool, err := pgxpool.New(ctx, "postgres://app@"+r.address+"/postgres?sslmode=disable&pool_max_conns=8"+options)
		must.Do(t, err)
		defer pool.Close()
		for range 8 {
			workers.Go(func() {
				for ctx.Err() == nil {
					count(transaction(pool))
				}
			})
		}
	}
	script := filepath.Join(t.TempDir(), "transaction.sql")
	must.Do(t, os.WriteFile(script, []byte("BEGIN;\nINSERT INTO done VALUES (1);\nCOMMIT;\n"), 0o644))
	host, port, _ := net.SplitHostPort(r.address)
	stopped := make(chan struct{})
	workers.Go(func() { // one run after another
		for ; ; runs.Add(1) {
			select {
			case <-stopped:
				return
			default:
			}
			run := exec.Command(pgbench, "-n", "-C", "-c", "2", "-T", "2", "-f", script, "-h", host, "-p", port, "-U", "app", "postgres")
			if out, err := run.CombinedOutput(); err != nil || !strings.Contains(string(out), "number of failed transactions: 0 ") {
				if broken.Add(1); !alone {
					t.Errorf("pgbench -C: %v\n%s", err, out)
				} else if broken.Load() == 1 {
					t.Logf("the first run of pgbench -C that failed: %v\n%s", err, out)
				}
			}
		}
	})
	r.run(t, *rotations, &done)
	close(stopped)
	cancel()
	workers.Wait()
	t.Logf("%d rotations: %d transactions, %d failed after they had begun, %d before; %d of %d runs of pgbench -C aborted; the slowest was gone after %s",
		*rotations, done.Load(), failed.Load(), refused.Load(), broken.Load(), runs.Load(), r.longest)
	if limit := 10 * time.Second; r.longest > limit && !alone {
		t.Errorf("a pod stayed for %s", r.longest)
	}
}

// transaction reports whether it has begun. It is not cancelled.
func transaction(pool *pgxpool.Pool) (began bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tx, err := pool.Begin(ctx)
	if err != nil {
		return false, err
	}
	for _, statement := range []string{"INSERT INTO done VALUES (1)", "SELECT pg_sleep(0.02)"} {
		if _, err := tx.Exec(ctx, statement); err != nil {
			_ = tx.Rollback(ctx)
			return true, err
		}
	}
	return true, tx.Commit(ctx)
}

// usePool runs transactions through HikariCP until the context ends.
func usePool(ctx context.Context, t *testing.T, cmd *exec.Cmd, count func(began bool, err error)) {
	in, out := io.Pipe()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Error(err)
		return
	}
	defer context.AfterFunc(ctx, func() { _ = stdin.Close() })()
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Error(err)
		return
	}
	go func() { _ = out.CloseWithError(cmd.Wait()) }()
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		kind, message, _ := strings.Cut(lines.Text(), " ")
		if kind == "done" {
			count(true, nil)
		} else {
			count(kind == "failed", errors.New(message))
		}
	}
	if err := lines.Err(); err != nil {
		t.Errorf("Pool.java: %v", err)
	}
}

// startTCPPostgres starts a database of its own on loopback.
func startTCPPostgres(t *testing.T) net.Addr {
	t.Helper()
	return address(t, startCluster(t, newCluster(t), syscall.SIGQUIT))
}

func address(t *testing.T, i *instance) net.Addr {
	t.Helper()
	addr, err := net.ResolveTCPAddr("tcp", i.address)
	must.Do(t, err)
	return addr
}

// newCluster returns the folder of a new database.
func newCluster(t *testing.T) (data string) {
	t.Helper()
	data = filepath.Join(shortFolder(t), "data")
	initdb := peers.NotRoot(peers.Need(t, "initdb"), "-D", data, "-A", "trust", "-U", "app", "--no-sync", "--no-locale", "-E", "UTF8")
	if out, err := initdb.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	return data
}

// startCluster starts the server of a database, with the table done.
func startCluster(t *testing.T, data string, stop syscall.Signal) *instance {
	t.Helper()
	addr := freeAddr(t)
	i := startInstance(t, addr, stop, syscall.SIGQUIT, peers.NotRoot(peers.Need(t, "postgres"), "-D", data, "-h", "127.0.0.1",
		"-p", fmt.Sprint(addr.Port), "-k", "", "-c", "fsync=off", "-c", "shared_buffers=8MB"))
	polltest.NoError(t, func() error {
		conn, err := pgx.Connect(t.Context(), "postgres://app@"+i.address+"/postgres?sslmode=disable")
		if err != nil {
			return err
		}
		_, err = conn.Exec(t.Context(), "CREATE TABLE IF NOT EXISTS done (n int)")
		return errors.Join(err, conn.Close(t.Context()))
	})
	return i
}

// postgresInTurns has two databases serve in turns, because the next server cannot open the files of one that has not ended.
func postgresInTurns(t *testing.T, stop syscall.Signal) func() *instance {
	t.Helper()
	next, other := newCluster(t), newCluster(t)
	return func() *instance {
		i := startCluster(t, next, stop)
		next, other = other, next
		return i
	}
}

func startPgbouncer(t *testing.T, server net.Addr, stop syscall.Signal) *instance {
	t.Helper()
	addr := freeAddr(t)
	_, port, _ := net.SplitHostPort(server.String())
	file := filepath.Join(shortFolder(t), "pgbouncer.ini")
	config := fmt.Sprintf("[databases]\npostgres = host=127.0.0.1 port=%s user=app\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"+
		"listen_port = %d\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\n", port, addr.Port)
	must.Do(t, os.WriteFile(file, []byte(config), 0o644))
	return startInstance(t, addr, stop, syscall.SIGKILL, peers.NotRoot(peers.Need(t, "pgbouncer"), "-q", file))
}

// startHAProxy starts a HAProxy that forwards TCP.
func startHAProxy(t *testing.T, server net.Addr) *instance {
	t.Helper()
	addr, file := freeAddr(t), filepath.Join(t.TempDir(), "haproxy.cfg")
	config := fmt.Sprintf("defaults\n  mode tcp\n  timeout connect 5s\n  timeout client 1h\n  timeout server 1h\n"+
		"listen database\n  bind %s\n  server one %s\n", addr, server)
	must.Do(t, os.WriteFile(file, []byte(config), 0o600))
	return startInstance(t, addr, syscall.SIGUSR1, syscall.SIGKILL, exec.Command(peers.Need(t, "haproxy"), "-db", "-f", file))
}
