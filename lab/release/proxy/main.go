// Proxy makes a module proxy of files from the modules of this working tree that others install, as if they had been
// released, so that they can be installed, imported and tidied before their tags exist:
//
//	proxy FOLDER    writes the modules there, and prints their version
//
// The version is the one that their go.mod files require of each other.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

const modulePath = "github.com/lastcall-dev/lastcall"

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: proxy FOLDER")
		os.Exit(2)
	}
	modules, version, err := published(".")
	if err != nil {
		fmt.Fprintln(os.Stderr, "proxy:", err)
		os.Exit(1)
	}
	for _, m := range modules {
		if err := m.pack(os.Args[1], version); err != nil {
			fmt.Fprintln(os.Stderr, "proxy:", err)
			os.Exit(1)
		}
	}
	fmt.Println(version)
}

// published are the modules of go.work but those of lab, and the one version that they require of each other. They have
// no replace lines, with which `go install` refuses a module.
func published(root string) (modules []source, version string, err error) {
	text, err := os.ReadFile(filepath.Join(root, "go.work"))
	if err != nil {
		return nil, "", err
	}
	work, err := modfile.ParseWork("go.work", text, nil)
	if err != nil {
		return nil, "", err
	}
	for _, use := range work.Use {
		if use.Path == "./lab" || strings.HasPrefix(use.Path, "./lab/") {
			continue
		}
		m := source{folder: filepath.Join(root, use.Path)}
		name := filepath.Join(m.folder, "go.mod")
		if m.text, err = os.ReadFile(name); err != nil {
			return nil, "", err
		}
		mod, err := modfile.Parse(name, m.text, nil)
		if err != nil {
			return nil, "", err
		}
		if len(mod.Replace) > 0 {
			return nil, "", fmt.Errorf("%s has replace lines: it could not be installed", name)
		}
		m.path = mod.Module.Mod.Path
		modules = append(modules, m)
		for _, r := range mod.Require {
			if r.Mod.Path != modulePath && !strings.HasPrefix(r.Mod.Path, modulePath+"/") {
				continue
			}
			if version != "" && version != r.Mod.Version {
				return nil, "", fmt.Errorf("%s requires %s: must be %s, as others require", name, r.Mod, version)
			}
			version = r.Mod.Version
		}
	}
	return modules, version, nil
}

// source is a module in the working tree.
type source struct {
	folder, path string
	text         []byte // go.mod
}

// pack writes what https://go.dev/ref/mod#goproxy-protocol requires.
func (m source) pack(proxy, version string) error {
	at := filepath.Join(proxy, filepath.FromSlash(m.path), "@v")
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	info, err := json.Marshal(map[string]any{"Version": version, "Time": time.Unix(0, 0).UTC()})
	if err != nil {
		return err
	}
	texts := map[string][]byte{"list": []byte(version + "\n"), version + ".mod": m.text, version + ".info": info}
	for suffix, text := range texts {
		if err := os.WriteFile(filepath.Join(at, suffix), text, 0o644); err != nil {
			return err
		}
	}
	files, err := m.files()
	if err != nil {
		return err
	}
	archive, err := os.Create(filepath.Join(at, version+".zip"))
	if err != nil {
		return err
	}
	return errors.Join(zip.Create(archive, module.Version{Path: m.path, Version: version}, files), archive.Close())
}

// files are those that git has or would add; zip.Create leaves out those of nested modules.
func (m source) files() (files []zip.File, err error) {
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate")
	cmd.Dir = m.folder
	names, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list the files of %s with git: %w", m.folder, err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names), "\x00"), "\x00") {
		f := file{name, filepath.Join(m.folder, name)}
		if _, err := f.Lstat(); errors.Is(err, fs.ErrNotExist) {
			continue // deleted, and not yet from the index
		}
		files = append(files, f)
	}
	return files, nil
}

// file is a zip.File.
type file struct{ name, place string }

func (f file) Path() string                 { return f.name }
func (f file) Lstat() (fs.FileInfo, error)  { return os.Lstat(f.place) }
func (f file) Open() (io.ReadCloser, error) { return os.Open(f.place) }
