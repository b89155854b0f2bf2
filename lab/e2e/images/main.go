// Images makes the images that the end-to-end tests need in addition to lastcall's own, each from scratch, of programs
// that lie on this machine:
//
//	local/httpbin:TAG                     the real httpbin under gunicorn, without a shell
//	local/rehearse:TAG                    the httpbin of rehearsals
//	local/talk:TAG                        an app and its clients
//	localhost/lastcall-envoy:TAG          lastcall with a real Envoy
//
//	go run ./lab/e2e/images -tag TAG -lastcall bin/lastcall -rehearse bin/rehearse -talk bin/talk -output dist/e2e
//
// and with -istio FOLDER, instead of these, Istio's local/pilot:TAG and local/proxyv2:TAG, and with -gateways
// local/envoy:TAG and those of local/contour:TAG and local/envoy-gateway:TAG that lab/peers/gateways has built.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
)

var (
	tag       = flag.String("tag", "", "`tag` of the images")
	lastcall  = flag.String("lastcall", "bin/lastcall", "static `program`")
	rehearse  = flag.String("rehearse", "bin/rehearse", "static `program`")
	fromIstio = flag.String("istio", "", "`folder` that lab/peers/istio/build prints: make Istio's images, and only these")
	talk      = flag.String("talk", "bin/talk", "static `program`")
	others    = flag.Bool("gateways", false, "make the images of other gateways, and only these")
	output    = flag.String("output", "dist/e2e", "`folder` for the archives")
)

func main() {
	flag.Parse()
	if *tag == "" || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "images: -tag TAG is required, and arguments other than flags are not allowed")
		os.Exit(2)
	}
	if *fromIstio != "" {
		exit(istio(*fromIstio))
	}
	if *others {
		exit(gateways())
	}
	exit(errors.Join(httpbin(), program("rehearse", *rehearse), program("talk", *talk), envoy()))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// tree is a root file system in the making. Files keep the paths that they have on this machine, which is where they
// look for each other.
type tree struct{ root string }

// image makes an image of the tree that fill writes, with the entry point and its arguments, by the flags of lab/image.
// Its archive has the last part of its name.
func image(name string, fill func(*tree) error, entrypoint []string, flags ...string) error {
	root, err := os.MkdirTemp("", "e2e-image")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(root) }()
	t := &tree{root}
	if err := fill(t); err != nil {
		return fmt.Errorf("collect %s: %w", name, err)
	}
	archive, err := filepath.Abs(filepath.Join(*output, path.Base(name)+".tar"))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(archive), 0o755); err != nil {
		return err
	}
	args := slices.Concat([]string{"run", "./lab/image", "-name", name + ":" + *tag, "-output", archive},
		flags, []string{root}, entrypoint)
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("make the image %s: %w\n%s", name, err, out)
	}
	return nil
}

// addTemporary makes /tmp.
func (t *tree) addTemporary() error {
	at := filepath.Join(t.root, "tmp")
	return errors.Join(os.Mkdir(at, 0o755), os.Chmod(at, 0o777|fs.ModeSticky))
}

// add copies a file, or what a link points to, to the path at.
func (t *tree) add(file, at string) error {
	target := filepath.Join(t.root, at)
	if _, err := os.Stat(target); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	return os.WriteFile(target, data, info.Mode().Perm()|0o444)
}

// addLibraries copies the libraries of a program or a library.
func (t *tree) addLibraries(of string) error {
	out, err := exec.Command("ldd", of).Output()
	if err != nil {
		return nil // a static program, or none
	}
	for line := range strings.Lines(string(out)) {
		for _, field := range strings.Fields(line) {
			if strings.HasPrefix(field, "/") {
				if err := t.add(field, field); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// addFolder copies a folder, except the files for which leave is true.
func (t *tree) addFolder(folder string, leave func(path string) bool) error {
	return filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case leave(path) && entry.IsDir():
			return filepath.SkipDir
		case leave(path) || entry.IsDir():
			return nil
		}
		if strings.Contains(filepath.Base(path), ".so") {
			if err := t.addLibraries(path); err != nil {
				return err
			}
		}
		return t.add(path, path)
	})
}

// python is an interpreter's description of itself.
type python struct{ Executable, Stdlib, Site string }

func httpbin() error {
	program, err := peers.Find("python")
	if err != nil {
		return err
	}
	out, err := exec.Command(program, "-c", `import json, os, sys, sysconfig
print(json.dumps({"Executable": os.path.realpath(sys.executable),
    "Stdlib": sysconfig.get_path("stdlib"), "Site": sysconfig.get_path("purelib")}))`).Output()
	if err != nil {
		return fmt.Errorf("ask %s where it is: %w", program, err)
	}
	var p python
	if err := json.Unmarshal(out, &p); err != nil {
		return err
	}
	leave := func(path string) bool {
		name := filepath.Base(path)
		unused := []string{"test", "tests", "__pycache__", "idlelib", "tkinter", "ensurepip", "_bin"}
		return slices.Contains(unused, name) || strings.HasPrefix(name, "config-3") ||
			path == filepath.Join(p.Stdlib, "site-packages")
	}
	return image("local/httpbin", func(t *tree) error {
		return errors.Join(t.add(p.Executable, p.Executable), t.addLibraries(p.Executable),
			t.addFolder(p.Stdlib, leave), t.addFolder(p.Site, leave), t.addTemporary())
	}, []string{p.Executable, "-m", "gunicorn", "--bind=0.0.0.0:8080", "--threads=16", "httpbin:app"},
		"-env", "PYTHONPATH="+p.Site, "-env", "PYTHONDONTWRITEBYTECODE=1", "-user", "65532:65532")
}

// program packs one static program.
func program(name, file string) error {
	return image("local/"+name, func(t *tree) error { return t.add(file, "/"+name) },
		[]string{"/" + name}, "-user", "65532:65532")
}

func envoy() error {
	program, err := peers.Find("envoy")
	if err != nil {
		return err
	}
	return image("localhost/lastcall-envoy", func(t *tree) error {
		return errors.Join(t.add(program, "/usr/local/bin/envoy"), t.addLibraries(program), t.add(*lastcall, "/lastcall"))
	}, []string{"/lastcall"}, "-capabilities", "-user", "1337:1337")
}
