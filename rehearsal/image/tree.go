package image

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// limits of an archive, and of the files of an image. A language model's server with its libraries has some 10 GB.
type limits struct {
	bytes int64
	files int
}

var defaults = limits{bytes: 32 << 30, files: 1_000_000}

// Whiteouts of the OCI image specification (layer.md): a file that removes its name, and one that removes what lower layers
// have in its folder. Other names with the second prefix are AUFS' own.
const (
	whiteout     = ".wh."
	opaque       = ".wh..wh..opq"
	auxiliary    = ".wh..wh."
	minimumOfDir = 0o700 // its owner can remove it
)

// tree is a folder into which archives are unpacked.
type tree struct {
	root *os.Root
	left limits
}

func newTree(dir string, l limits) (*tree, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &tree{root, l}, nil
}

func (t *tree) close() { _ = t.root.Close() }

// add unpacks a tar. In a layer, whiteouts remove files of lower layers.
func (t *tree) add(content io.Reader, isLayer bool) error {
	own := map[string]bool{} // names of this layer, and their folders
	for archive := tar.NewReader(content); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read a tar: %w", err)
		}
		if t.left.files--; t.left.files < 0 {
			return errors.New("it has too many files")
		}
		name := path.Clean(strings.TrimLeft(h.Name, "/"))
		switch {
		case name == ".":
			continue
		case !filepath.IsLocal(name):
			return fmt.Errorf("%q is outside of the image", h.Name)
		}
		if base := path.Base(name); isLayer && strings.HasPrefix(base, whiteout) {
			if err := t.remove(path.Dir(name), base, own); err != nil {
				return fmt.Errorf("%q: %w", h.Name, err)
			}
			continue
		}
		if err := t.put(name, h, archive); err != nil {
			return fmt.Errorf("%q: %w", h.Name, err)
		}
		for ; name != "." && !own[name]; name = path.Dir(name) {
			own[name] = true
		}
	}
}

// remove applies a whiteout in a folder.
func (t *tree) remove(dir, base string, own map[string]bool) error {
	if base != opaque {
		gone := strings.TrimPrefix(base, whiteout)
		if strings.HasPrefix(base, auxiliary) {
			return nil
		}
		if gone == "" || gone == "." || gone == ".." {
			return errors.New("it names no file")
		}
		return t.root.RemoveAll(path.Join(dir, gone))
	}
	below, err := fs.ReadDir(t.root.FS(), dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range below {
		if name := path.Join(dir, e.Name()); err == nil && !own[name] {
			err = t.root.RemoveAll(name)
		}
	}
	return err
}

// put makes one entry, in place of what a lower layer has there; a folder keeps its files.
func (t *tree) put(name string, h *tar.Header, content io.Reader) error {
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeDir, tar.TypeSymlink, tar.TypeLink:
	default:
		return nil // devices, which are this machine's, and headers
	}
	if dir := path.Dir(name); dir != "." {
		if err := t.root.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	isDir := h.Typeflag == tar.TypeDir
	if old, err := t.root.Lstat(name); err == nil && !(isDir && old.IsDir()) {
		if err := t.root.RemoveAll(name); err != nil {
			return err
		}
	}
	mode := fs.FileMode(h.Mode).Perm()
	switch h.Typeflag {
	case tar.TypeDir:
		if err := t.root.MkdirAll(name, 0o755); err != nil {
			return err
		}
		return t.root.Chmod(name, mode|minimumOfDir)
	case tar.TypeSymlink:
		return t.root.Symlink(h.Linkname, name)
	case tar.TypeLink:
		return t.root.Link(path.Clean(strings.TrimLeft(h.Linkname, "/")), name)
	}
	return t.write(name, mode, h, content)
}

func (t *tree) write(name string, mode fs.FileMode, h *tar.Header, content io.Reader) (err error) {
	if t.left.bytes -= h.Size; t.left.bytes < 0 {
		return errors.New("it has too many bytes")
	}
	f, err := t.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := io.Copy(f, content); err != nil {
		return err
	}
	return t.root.Chtimes(name, h.ModTime, h.ModTime) // Python's compiled files are valid for one time of their source
}
