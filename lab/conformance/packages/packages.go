// Package packages installs client and server libraries of other languages by their package managers, for the tests of
// this module.
package packages

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

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
)

// Pip are the arguments of Python that install a folder's requirements.txt.
func Pip(folder string) []string {
	return []string{"-m", "pip", "-qq", "--disable-pip-version-check", "install", "--retries", "2",
		"--target", filepath.Join(folder, "packages"), "-r", filepath.Join(folder, "requirements.txt")}
}

// Npm are npm's, for package.json. No package's scripts are run.
func Npm(folder string) []string {
	return []string{"install", "--prefix", folder, "--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"}
}

// maven are mvn's, for pom.xml.
func maven(folder string) []string {
	return []string{"-q", "-B", "-f", filepath.Join(folder, "pom.xml"), "dependency:copy-dependencies", "-DincludeScope=runtime",
		"-DoutputDirectory=" + filepath.Join(folder, "jars")}
}

// Installer returns what installs the packages that a file names into the user's cache folder,
// once for each state of the file. wanted is the file, as what the package manager
// finds it, inside what folder the packages are then, and its arguments. A test that cannot have them is skipped, and
// fails in CI.
func Installer(name string) func(t *testing.T, manager, wanted, as, inside string, args func(folder string) []string) string {
	var once sync.Once
	var path string
	var err error
	return func(t *testing.T, manager, wanted, as, inside string, args func(folder string) []string) string {
		t.Helper()
		program := peers.Need(t, manager)
		once.Do(func() { path, err = install(name, program, wanted, as, inside, args) })
		if err != nil && !peers.InCI() {
			t.Skip(err)
		}
		must.Do(t, err)
		return path
	}
}

// Java returns the command of a class of testdata. All are compiled once, with the libraries of testdata/pom.xml, into the
// folder scratch, which is set when a test runs.
func Java(name string, scratch *string) func(t *testing.T, class string, args ...string) *exec.Cmd {
	libraries := Installer(name)
	var once sync.Once
	var path string
	var err error
	return func(t *testing.T, class string, args ...string) *exec.Cmd {
		t.Helper()
		java, compiler := peers.Need(t, "java"), peers.Need(t, "javac")
		jars := libraries(t, "mvn", "testdata/pom.xml", "pom.xml", "jars", maven)
		once.Do(func() {
			folder := filepath.Join(*scratch, "classes")
			path = folder + ":" + filepath.Join(jars, "*")
			sources, _ := filepath.Glob("testdata/*.java")
			var out []byte
			out, err = exec.Command(compiler, append([]string{"-cp", path, "-d", folder}, sources...)...).CombinedOutput()
			if err != nil {
				err = fmt.Errorf("javac: %w\n%s", err, out)
			}
		})
		must.Do(t, err)
		short := []string{"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"} // short programs start faster
		return exec.Command(java, slices.Concat(short, []string{"-cp", path, class}, args)...)
	}
}

func install(name, manager, wanted, as, inside string, args func(folder string) []string) (string, error) {
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
	command := exec.CommandContext(ctx, manager, args(fresh)...)
	command.Dir = fresh
	if out, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("install %s: %w %s", wanted, err, out)
	}
	if err := os.Rename(fresh, folder); err != nil {
		if _, there := os.Stat(packages); there != nil {
			return "", err
		}
	}
	return packages, nil
}
