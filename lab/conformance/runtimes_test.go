package conformance

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
	"github.com/lastcall-dev/lastcall/lab/conformance/packages"
)

// program is the command line of a client's script, for a kind of client and, of a session, a URL.
type program func(t *testing.T, args ...string) *exec.Cmd

func python(t *testing.T, args ...string) *exec.Cmd {
	return exec.Command(peers.Need(t, "python"), append([]string{"testdata/session.py"}, args...)...)
}

// installed ends the test unless a package manager has installed what it needs: only in CI it must.
func installed(t *testing.T, err error) {
	t.Helper()
	switch {
	case err == nil:
	case peers.InCI():
		t.Fatal(err)
	default:
		t.Skip(err)
	}
}

// javaFlags make short programs start faster.
var javaFlags = []string{"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"}

func node(t *testing.T, args ...string) *exec.Cmd {
	program, npm := peers.Need(t, "node"), peers.Need(t, "npm")
	modules, err := nodeModules(npm)
	installed(t, err)
	command := exec.Command(program, append([]string{"testdata/node/session.js"}, args...)...)
	command.Env = append(os.Environ(), "NODE_PATH="+modules)
	return command
}

// nodeModules is the folder with what testdata/node/package.json names.
func nodeModules(npm string) (string, error) {
	return nodeFolder(npm, "testdata/node/package.json", "package.json", "node_modules", packages.Npm)
}

// pythonPackages is the folder with what testdata/requirements.txt names.
func pythonPackages(t *testing.T) string {
	t.Helper()
	folder, err := pythonFolder(peers.Need(t, "python"), "testdata/requirements.txt", "requirements.txt", "packages", packages.Pip)
	installed(t, err)
	return folder
}

var nodeFolder, pythonFolder, workersFolder = packages.Installer("node"), packages.Installer("python"), packages.Installer("workers")

func java(t *testing.T, args ...string) *exec.Cmd { return javaProgram(t, "Session", args) }

func javaStream(t *testing.T, args ...string) *exec.Cmd { return javaProgram(t, "Stream", args) }

// javaProgram is the command of a class, which is compiled once.
func javaProgram(t *testing.T, class string, args []string) *exec.Cmd {
	compiler := peers.Need(t, "javac")
	jars, err := javaJars(t)
	var classes string
	if err == nil {
		classes, err = javaClasses(compiler, jars)
	}
	installed(t, err)
	return exec.Command(peers.Need(t, "java"), slices.Concat(javaFlags, []string{"-cp", classes + ":" + filepath.Join(jars, "*"), class}, args)...)
}

// javaJars returns the folder of the libraries.
func javaJars(t *testing.T) (string, error) {
	return javaFolder(peers.Need(t, "mvn"), "testdata/pom.xml", "pom.xml", "jars", packages.Maven)
}

var javaFolder = packages.Installer("java")

// javaClasses compiles Session.java and Stream.java into the folder that all tests share.
var javaClasses = func() func(compiler, jars string) (string, error) {
	var once sync.Once
	var folder string
	var err error
	return func(compiler, jars string) (string, error) {
		once.Do(func() {
			folder = filepath.Join(scratch, "classes")
			var out []byte
			out, err = exec.Command(compiler, "-cp", filepath.Join(jars, "*"), "-d", folder, "testdata/Session.java", "testdata/Stream.java").CombinedOutput()
			if err != nil {
				err = fmt.Errorf("compile testdata/*.java: %w\n%s", err, out)
			}
		})
		return folder, err
	}
}()
