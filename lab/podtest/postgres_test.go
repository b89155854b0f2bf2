package podtest

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
)

// startPostgres makes a cluster with a table rounds, and returns its address.
func startPostgres(t *testing.T, in *nettest.Namespace) string {
	t.Helper()
	initdb, postgres, address := peers.Need(t, "initdb"), peers.Need(t, "postgres"), in.TCP4(5432)
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	initialise := launch(t, in, "initdb", nil, notRoot(initdb, "-D", data, "-A", "trust", "-U", "app", "--no-sync", "--no-locale", "-E", "UTF8"))
	if err := initialise.wait(t); err != nil {
		t.Fatalf("initdb: %v\n%s", err, initialise.log)
	}
	hba := "host all all 0.0.0.0/0 trust\n"
	if err := os.WriteFile(filepath.Join(data, "pg_hba.conf"), []byte(hba), 0o600); err != nil {
		t.Fatal(err)
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
// value of the last row (PostgreSQL's protocol 3.0, simple query).
func postgresQuery(in *nettest.Namespace, address, query string) (value string, err error) {
	conn, err := func() (net.Conn, error) {
		if in == nil {
			return net.DialTimeout("tcp", address, 5*time.Second)
		}
		return in.Dial(context.Background(), "tcp", address)
	}()
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	const version = 3 << 16
	startup := binary.BigEndian.AppendUint32(nil, version)
	startup = append(startup, "user\x00app\x00database\x00postgres\x00\x00"...)
	if err := postgresSend(conn, 0, startup); err != nil {
		return "", err
	}
	if _, err := postgresAnswer(conn); err != nil {
		return "", fmt.Errorf("log in: %w", err)
	}
	if err := postgresSend(conn, 'Q', append([]byte(query), 0)); err != nil {
		return "", err
	}
	if value, err = postgresAnswer(conn); err != nil {
		return "", fmt.Errorf("%s: %w", query, err)
	}
	return value, postgresSend(conn, 'X', nil)
}

func postgresSend(w io.Writer, kind byte, body []byte) error {
	var b []byte
	if kind != 0 {
		b = append(b, kind)
	}
	b = binary.BigEndian.AppendUint32(b, uint32(len(body)+4))
	_, err := w.Write(append(b, body...))
	return err
}

// postgresAnswer reads on until the server is ready for the next query.
func postgresAnswer(r io.Reader) (value string, err error) {
	var complaint error
	for {
		var head [5]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return "", err
		}
		body := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
		if _, err := io.ReadFull(r, body); err != nil {
			return "", err
		}
		switch head[0] {
		case 'Z':
			return value, complaint
		case 'E':
			complaint = fmt.Errorf("postgres: %q", body)
			if string(body[:9]) == "SFATAL\x00VF" { // it hangs up
				return "", complaint
			}
		case 'D': // one column: its count, the value's length, the value
			value = string(body[6:])
		}
	}
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
