package podtest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
)

var made sync.Once // of the cluster

// emptyCluster makes a cluster that all tests copy, since it takes a second, and returns its folder.
func emptyCluster(t *testing.T) string {
	t.Helper()
	data, initdb := filepath.Join(filepath.Dir(program), "cluster"), peers.Need(t, "initdb")
	made.Do(func() {
		out, err := notRoot(initdb, "-D", data, "-A", "trust", "-U", "app", "--no-sync", "--no-locale", "-E", "UTF8").CombinedOutput()
		if err == nil {
			err = os.WriteFile(filepath.Join(data, "pg_hba.conf"), []byte("host all all 0.0.0.0/0 trust\n"), 0o600)
		}
		if err != nil {
			t.Fatalf("initdb: %v\n%s", err, out)
		}
	})
	return data
}

// startPostgres makes a cluster with a table rounds, and returns its address.
func startPostgres(t *testing.T, in *nettest.Namespace) string {
	t.Helper()
	postgres, address := peers.Need(t, "postgres"), in.TCP4(5432)
	data := filepath.Join(t.TempDir(), "data")
	if out, err := exec.Command("cp", "-a", emptyCluster(t), data).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	c := launch(t, in, "postgres", nil, notRoot(postgres, "-D", data, "-h", in.IPv4.String(), "-k", "", "-c", "fsync=off", "-c", "shared_buffers=8MB"))
	awaitServer(t, c, func() error {
		_, err := postgresQuery(in, address, "CREATE TABLE IF NOT EXISTS rounds (n int)")
		return err
	})
	// Its children outlive a SIGKILL for a moment and would write into a folder that is being removed.
	t.Cleanup(func() { _ = c.signal(syscall.SIGQUIT); <-c.done })
	return address
}

// notRoot is a command in a user namespace of its own, in which root has no special rights: PostgreSQL refuses to run as
// root, and its files may lie where no other user may look.
func notRoot(path string, args ...string) *exec.Cmd {
	const user = 1000
	cmd := exec.Command(path, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: user, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: user, HostID: os.Getgid(), Size: 1}},
		Credential:  &syscall.Credential{Uid: user, Gid: user, NoSetGroups: true},
	}
	return cmd
}

// postgresQuery runs a query on a connection of its own, from a namespace or from where we are, and returns the first
// value of the last row.
func postgresQuery(in *nettest.Namespace, address, query string) (value string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	config, err := pgconn.ParseConfig("postgres://app@" + address + "/postgres?sslmode=disable")
	if err != nil {
		return "", err
	}
	if in != nil {
		config.DialFunc = in.Dial
	}
	conn, err := pgconn.ConnectConfig(ctx, config)
	if err != nil {
		return "", err
	}
	results, err := conn.Exec(ctx, query).ReadAll()
	for _, r := range results {
		for _, row := range r.Rows {
			value = string(row[0])
		}
	}
	return value, errors.Join(err, conn.Close(ctx))
}

func postgresCount(t *testing.T, in *nettest.Namespace, address, table string) int {
	t.Helper()
	value, err := postgresQuery(in, address, "SELECT count(*) FROM "+table)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(value)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
