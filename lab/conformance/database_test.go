package conformance

import (
	"context"
	"flag"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
)

// rotations is how many pods in front of a database end one after another; BENCHMARKS.md has the figures of 50.
var rotations = flag.Int("rotations", 3, "terminations of TestPostgresRotations")

// TestPostgresRotations replaces the pod in front of a PostgreSQL under a pool of Go's pgx, with transactions of 20 ms
// back to back, and pgbench -C. A transaction that has begun never fails, and no pod waits for its last call.
func TestPostgresRotations(t *testing.T) {
	pgbench := peers.Need(t, "pgbench")
	r := newRotation(t, podsBefore(t, startTCPPostgres(t)))
	address := r.address

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	pool, err := pgxpool.New(ctx, "postgres://app@"+address+"/postgres?sslmode=disable&pool_max_conns=8")
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	polltest.NoError(t, func() error {
		_, err := pool.Exec(ctx, "CREATE TABLE IF NOT EXISTS done (n int)")
		return err
	})
	var done, refused, failed atomic.Int64
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for ctx.Err() == nil {
				began, err := transaction(pool)
				switch {
				case err == nil:
					done.Add(1)
				case began:
					failed.Add(1)
					t.Errorf("a transaction that had begun: %v", err)
				default:
					refused.Add(1)
				}
			}
		})
	}
	script := filepath.Join(t.TempDir(), "transaction.sql")
	if err := os.WriteFile(script, []byte("BEGIN;\nINSERT INTO done VALUES (1);\nCOMMIT;\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	host, port, _ := net.SplitHostPort(address)
	stopped := make(chan struct{})
	workers.Go(func() { // one run after another
		for runs := 0; ; runs++ {
			select {
			case <-stopped:
				return
			default:
			}
			run := exec.Command(pgbench, "-n", "-C", "-c", "2", "-T", "2", "-f", script, "-h", host, "-p", port, "-U", "app", "postgres")
			if out, err := run.CombinedOutput(); err != nil || !strings.Contains(string(out), "number of failed transactions: 0 ") {
				t.Errorf("pgbench -C: %v\n%s", err, out)
			}
		}
	})
	r.run(t, *rotations, &done)
	close(stopped)
	cancel()
	workers.Wait()
	t.Logf("%d rotations: %d transactions, %d failed after they had begun, %d before; the slowest pod was gone after %s",
		*rotations, done.Load(), failed.Load(), refused.Load(), r.longest)
	if limit := 10 * time.Second; r.longest > limit {
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

// startTCPPostgres starts a database of its own on loopback.
func startTCPPostgres(t *testing.T) net.Addr {
	t.Helper()
	data, addr := filepath.Join(shortFolder(t), "data"), freeAddr(t)
	initdb := notRoot(peers.Need(t, "initdb"), "-D", data, "-A", "trust", "-U", "app", "--no-sync", "--no-locale", "-E", "UTF8")
	if out, err := initdb.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	_, port, _ := net.SplitHostPort(addr.String())
	launch(t, notRoot(peers.Need(t, "postgres"), "-D", data, "-h", "127.0.0.1", "-p", port, "-k", "", "-c", "fsync=off",
		"-c", "shared_buffers=8MB"))
	polltest.NoError(t, func() error { return dialOnce("tcp", addr.String()) })
	return addr
}
