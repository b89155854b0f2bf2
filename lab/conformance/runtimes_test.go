package conformance

import (
	"os"
	"os/exec"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
	"github.com/lastcall-dev/lastcall/lab/conformance/packages"
)

// program is the command line of a client's script, for a kind of client and, of a session, a URL.
type program func(t *testing.T, args ...string) *exec.Cmd

func python(t *testing.T, args ...string) *exec.Cmd {
	return exec.Command(peers.Need(t, "python"), append([]string{"testdata/session.py"}, args...)...)
}

func node(t *testing.T, args ...string) *exec.Cmd {
	modules := nodeFolder(t, "npm", "testdata/node/package.json", "package.json", "node_modules", packages.Npm)
	command := exec.Command(peers.Need(t, "node"), append([]string{"testdata/node/session.js"}, args...)...)
	command.Env = append(os.Environ(), "NODE_PATH="+modules)
	return command
}

// pythonPackages is the folder with what testdata/requirements.txt names.
func pythonPackages(t *testing.T) string {
	return pythonFolder(t, "python", "testdata/requirements.txt", "requirements.txt", "packages", packages.Pip)
}

var nodeFolder, pythonFolder, workersFolder = packages.Installer("node"), packages.Installer("python"), packages.Installer("workers")

func java(t *testing.T, args ...string) *exec.Cmd { return javaProgram(t, "Session", args...) }

func javaStream(t *testing.T, args ...string) *exec.Cmd { return javaProgram(t, "Stream", args...) }

var javaProgram = packages.Java("java", &scratch)
