package podtest

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
)

// What a server allows to programs of its own machine alone, by address, it refuses to a client behind the sidecar, as
// without one; and allows to the pod.
func TestLocalRulesRefuseClients(t *testing.T) {
	t.Parallel()
	p := start(t)
	for _, tt := range []struct {
		name            string
		start           func(t *testing.T, in *nettest.Namespace, dir string)
		port            uint16
		question        string
		refuses, allows string // words of the answer
	}{
		{"Redis in protected mode", startProtectedRedis, 6380, "PING\r\n", "-DENIED", "+PONG"},
		{"Apache, Require local", startApache, 8081, "GET / HTTP/1.0\r\n\r\n", " 403 ", " 200 "},
		{"PostgreSQL, samehost", startPostgres, 5432, pgStartup, "no pg_hba.conf entry", "server_version"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			for parent := dir; parent != os.TempDir() && parent != "/"; parent = filepath.Dir(parent) {
				_ = os.Chmod(parent, 0o755) // Apache is not root
			}
			tt.start(t, p.Pod, dir)
			ask := func(from *nettest.Namespace, to string) string {
				c, err := from.Dial(t.Context(), "tcp", to)
				if err != nil {
					return err.Error()
				}
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(patience))
				_, _ = io.WriteString(c, tt.question)
				var text strings.Builder
				for b := make([]byte, 1024); !strings.Contains(text.String(), tt.refuses) && !strings.Contains(text.String(), tt.allows); {
					n, err := c.Read(b)
					if text.Write(b[:n]); err != nil {
						break
					}
				}
				return text.String()
			}
			polltest.Eventually(t, "an answer in the pod", func() bool {
				return strings.Contains(ask(p.Pod, fmt.Sprintf("127.0.0.1:%d", tt.port)), tt.allows)
			}, p.sidecar.log)
			for _, to := range []string{p.Pod.TCP4(tt.port), p.Pod.TCP6(tt.port)} {
				if text := ask(p.Client, to); !strings.Contains(text, tt.refuses) {
					t.Errorf("a client at %s got %q; want %q", to, text, tt.refuses)
				}
			}
		})
	}
}

func startProtectedRedis(t *testing.T, in *nettest.Namespace, dir string) {
	launch(t, in, "redis", nil, &exec.Cmd{Path: peers.Need(t, "redis-server"), Dir: dir, Args: []string{
		"redis-server", "--bind", "0.0.0.0", "::", "--port", "6380", "--save", "", "--appendonly", "no",
	}})
}

func startApache(t *testing.T, in *nettest.Namespace, dir string) {
	apache := peers.Need(t, "apache2")
	conf := `ServerRoot DIR
PidFile DIR/apache.pid
Mutex posixsem
ServerName localhost
User #65534
Group #65534
Listen 0.0.0.0:8081
Listen [::]:8081
LoadModule mpm_event_module MODULES/mod_mpm_event.so
LoadModule authz_core_module MODULES/mod_authz_core.so
LoadModule authz_host_module MODULES/mod_authz_host.so
LoadModule dir_module MODULES/mod_dir.so
ErrorLog /dev/null
DocumentRoot DIR
<Directory DIR>
Require local
</Directory>
`
	write(t, filepath.Join(dir, "index.html"), "hello")
	file := write(t, filepath.Join(dir, "apache.conf"), strings.NewReplacer("DIR", dir, "MODULES", peers.ApacheModules(apache)).Replace(conf))
	launch(t, in, "apache", nil, exec.Command(apache, "-X", "-f", file))
}

func startPostgres(t *testing.T, in *nettest.Namespace, dir string) {
	initdb, postgres, data := peers.Need(t, "initdb"), peers.Need(t, "postgres"), filepath.Join(dir, "data")
	made := peers.NotRoot(initdb, "-D", data, "-A", "trust", "-U", "app", "--no-sync", "--no-locale", "-E", "UTF8")
	if out, err := made.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	rules := write(t, filepath.Join(dir, "hba.conf"), "host all all samehost trust\n")
	server := peers.NotRoot(postgres, "-D", data, "-h", "*", "-p", "5432", "-k", "", "-c", "fsync=off",
		"-c", "shared_buffers=8MB", "-c", "hba_file="+rules)
	launch(t, in, "postgres", nil, server)
}

// pgStartup is a client's first message.
var pgStartup = func() string {
	text := "\x00\x03\x00\x00user\x00app\x00database\x00postgres\x00\x00"
	return string(binary.BigEndian.AppendUint32(nil, uint32(4+len(text)))) + text
}()

func write(t *testing.T, file, text string) string {
	t.Helper()
	must.Do(t, os.WriteFile(file, []byte(text), 0o644))
	return file
}
