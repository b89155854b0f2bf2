package conformance

import (
	"context"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
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

// java starts the script from its source, which takes a compiler: a JDK.
func java(t *testing.T, args ...string) *exec.Cmd {
	peers.Need(t, "javac")
	return exec.Command(peers.Need(t, "java"), slices.Concat(javaFlags, []string{"testdata/Session.java"}, args)...)
}

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
	return nodeFolder(npm, "testdata/node/package.json", "package.json", "node_modules", func(folder string) []string {
		// No package's scripts are run.
		return []string{"install", "--prefix", folder, "--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"}
	})
}

// pythonPackages is the folder with what testdata/requirements.txt names.
func pythonPackages(t *testing.T) string {
	t.Helper()
	folder, err := pythonFolder(peers.Need(t, "python"), "testdata/requirements.txt", "requirements.txt", "packages", pipArguments)
	installed(t, err)
	return folder
}

// pipArguments are those of Python that install a folder's requirements.txt.
func pipArguments(folder string) []string {
	return []string{"-m", "pip", "-qq", "--disable-pip-version-check", "install", "--retries", "2",
		"--target", filepath.Join(folder, "packages"), "-r", filepath.Join(folder, "requirements.txt")}
}

var nodeFolder, pythonFolder, workersFolder = installer("node"), installer("python"), installer("workers")

// installer returns what installs the packages that a file names into the user's cache folder,
// once for each state of the file. wanted is the file, as what the package manager
// finds it, inside what folder the packages are then, and its arguments.
func installer(name string) func(manager, wanted, as, inside string, args func(folder string) []string) (string, error) {
	var once sync.Once
	var path string
	var err error
	return func(manager, wanted, as, inside string, args func(folder string) []string) (string, error) {
		once.Do(func() { path, err = installPackages(name, manager, wanted, as, inside, args) })
		return path, err
	}
}

func installPackages(name, manager, wanted, as, inside string, args func(folder string) []string) (string, error) {
	file, err := os.ReadFile(wanted)
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	folder := filepath.Join(cache, "lastcall", "conformance", fmt.Sprintf("%s-%08x", name, crc32.ChecksumIEEE(file)))
	packages := filepath.Join(folder, inside)
	if _, err := os.Stat(packages); err == nil {
		return packages, nil
	}
	if err := os.MkdirAll(filepath.Dir(folder), 0o755); err != nil {
		return "", err
	}
	// Installed in another folder and then moved: another run may be in progress, and an incomplete installation must not be used.
	fresh, err := os.MkdirTemp(filepath.Dir(folder), name+"-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(fresh)
	if err := os.WriteFile(filepath.Join(fresh, as), file, 0o644); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	install := exec.CommandContext(ctx, manager, args(fresh)...)
	install.Dir = fresh
	if out, err := install.CombinedOutput(); err != nil {
		return "", fmt.Errorf("install %s: %w %s", wanted, err, out)
	}
	if err := os.Rename(fresh, folder); err != nil {
		if _, there := os.Stat(packages); there != nil {
			return "", err
		}
	}
	return packages, nil
}

// javaStream is the command of Stream.java, which is compiled once.
func javaStream(t *testing.T, args ...string) *exec.Cmd {
	compiler := peers.Need(t, "javac")
	jars, err := javaJars(t)
	var classes string
	if err == nil {
		classes, err = javaClasses(compiler, jars)
	}
	installed(t, err)
	return exec.Command(peers.Need(t, "java"), slices.Concat(javaFlags, []string{"-cp", classes + ":" + filepath.Join(jars, "*"), "Stream"}, args)...)
}

// javaJars returns the folder of the libraries.
func javaJars(t *testing.T) (string, error) {
	return javaFolder(peers.Need(t, "mvn"), "testdata/pom.xml", "pom.xml", "jars", func(folder string) []string {
		return []string{"-q", "-B", "-f", filepath.Join(folder, "pom.xml"), "dependency:copy-dependencies", "-DincludeScope=runtime",
			"-DoutputDirectory=" + filepath.Join(folder, "jars")}
	})
}

var javaFolder = installer("java")

// javaClasses compiles Stream.java into the folder that all tests share.
var javaClasses = func() func(compiler, jars string) (string, error) {
	var once sync.Once
	var folder string
	var err error
	return func(compiler, jars string) (string, error) {
		once.Do(func() {
			folder = filepath.Join(scratch, "classes")
			var out []byte
			out, err = exec.Command(compiler, "-cp", filepath.Join(jars, "*"), "-d", folder, "testdata/Stream.java").CombinedOutput()
			if err != nil {
				err = fmt.Errorf("compile Stream.java: %w\n%s", err, out)
			}
		})
		return folder, err
	}
}()
