package image

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Image is an unpacked image.
type Image struct {
	Root   string    // folder with its files
	Config v1.Config // entrypoint, environment, working folder, …
}

// Port is the TCP port that the image exposes; 0 if it is not exactly one.
func (i *Image) Port() (port int) {
	if len(i.Config.ExposedPorts) != 1 {
		return 0
	}
	for text := range i.Config.ExposedPorts {
		number, protocol, _ := strings.Cut(text, "/")
		if protocol == "" || protocol == "tcp" {
			port, _ = strconv.Atoi(number) // 0 for what is not a number
		}
	}
	return port
}

// Unpack unpacks the image of a file for this machine's processor into dir, an existing folder.
func Unpack(file, dir string) (*Image, error) {
	img, err := unpack(file, dir, defaults)
	if err != nil {
		return nil, fmt.Errorf("unpack %s: %w", file, err)
	}
	return img, nil
}

func unpack(file, dir string, l limits) (*Image, error) {
	archive := filepath.Join(dir, "archive")
	defer func() { _ = os.RemoveAll(archive) }()
	img, err := open(file, archive, l)
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	if a := config.Architecture; a != "" && a != runtime.GOARCH {
		return nil, fmt.Errorf("the image is for %s: this machine needs one for linux/%s", a, runtime.GOARCH)
	}
	layers, err := img.Layers()
	if err != nil {
		return nil, fmt.Errorf("read the layers: %w", err)
	}
	root := filepath.Join(dir, "root")
	t, err := newTree(root, l)
	if err != nil {
		return nil, err
	}
	defer t.close()
	for i, layer := range layers {
		if err := t.addLayer(layer); err != nil {
			return nil, fmt.Errorf("layer %d: %w", i+1, err)
		}
	}
	return &Image{Root: root, Config: config.Config}, nil
}

func (t *tree) addLayer(l v1.Layer) error {
	content, err := l.Uncompressed()
	if err != nil {
		return err
	}
	defer func() { _ = content.Close() }()
	return t.add(content, true)
}

// open reads the archive. An OCI layout is unpacked into dir.
func open(file, dir string, l limits) (v1.Image, error) {
	names, err := list(file, l)
	if err != nil {
		return nil, err
	}
	switch {
	case names.has("oci-layout") && names.has("index.json"): // docker save's archives have been both since Docker 25
		t, err := newTree(dir, l)
		if err != nil {
			return nil, err
		}
		defer t.close()
		content, err := opener(file)
		if err != nil {
			return nil, err
		}
		defer func() { _ = content.Close() }()
		if err := t.add(content, false); err != nil {
			return nil, err
		}
		if err := names.check("index.json"); err != nil {
			return nil, err
		}
		index, err := layout.ImageIndexFromPath(dir)
		if err != nil {
			return nil, err
		}
		return names.choose(index)
	case names.has("manifest.json"):
		if err := names.check("manifest.json"); err != nil {
			return nil, err
		}
		again := func() (io.ReadCloser, error) { return opener(file) }
		m, err := tarball.LoadManifest(again)
		if err != nil {
			return nil, err
		}
		for _, d := range m {
			if err := names.check(d.Config); err != nil {
				return nil, err
			}
		}
		return tarball.Image(again, nil)
	}
	return nil, errors.New("it is not an image: neither a tar of an OCI layout (index.json) nor docker save's (manifest.json)")
}

// sizes are those of the archive's files, by name.
type sizes map[string]int64

func (s sizes) has(name string) bool { _, found := s[name]; return found }

// maxJSON bounds what is read into memory.
const maxJSON = 16 << 20

// check returns an error for a file that is too long to be JSON of an image.
func (s sizes) check(name string) error {
	if s[name] > maxJSON {
		return fmt.Errorf("%s has %d bytes: more than %d are not a description of an image", name, s[name], maxJSON)
	}
	return nil
}

// checkBlob is check of a layout's file.
func (s sizes) checkBlob(h v1.Hash) error { return s.check("blobs/" + h.Algorithm + "/" + h.Hex) }

// list reads the archive's headers.
func list(file string, l limits) (sizes, error) {
	content, err := opener(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = content.Close() }()
	all := sizes{}
	for archive := tar.NewReader(content); ; {
		h, err := archive.Next()
		switch {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("it is not a tar: %w", err)
		}
		if l.files--; l.files < 0 {
			return nil, errors.New("it has too many files")
		}
		if l.bytes -= h.Size; l.bytes < 0 {
			return nil, errors.New("it has too many bytes")
		}
		all[strings.TrimPrefix(h.Name, "./")] = h.Size
	}
}

// opener opens the archive, through gzip if it is compressed.
func opener(file string) (io.ReadCloser, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	var head [2]byte
	_, _ = f.ReadAt(head[:], 0) // a shorter file is not a tar either
	if !bytes.Equal(head[:], []byte{0x1f, 0x8b}) {
		return f, nil
	}
	z, err := gzip.NewReader(f)
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{z, f}, nil
}

// maxDepth is how deep indexes may lie within each other: a layout's, and the one of an image for several platforms.
const maxDepth = 4

// choose returns the image for this machine. One image may have several names.
func (s sizes) choose(index v1.ImageIndex) (v1.Image, error) {
	found := map[v1.Hash]v1.Image{}
	if err := s.collect(index, found, maxDepth); err != nil {
		return nil, err
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("it has %d images for linux/%s: must be one", len(found), runtime.GOARCH)
	}
	for _, img := range found {
		return img, nil
	}
	panic("unreachable")
}

func (s sizes) collect(index v1.ImageIndex, found map[v1.Hash]v1.Image, depth int) error {
	m, err := index.IndexManifest()
	if err != nil {
		return err
	}
	for _, d := range m.Manifests {
		if err := s.checkBlob(d.Digest); err != nil {
			return err
		}
		switch p := d.Platform; {
		case d.MediaType.IsIndex() && depth > 0:
			below, err := index.ImageIndex(d.Digest)
			if err == nil {
				err = s.collect(below, found, depth-1)
			}
			if err != nil {
				return err
			}
		case d.MediaType.IsImage() && (p == nil || cmp.Or(p.OS, "linux") == "linux" && p.Architecture == runtime.GOARCH):
			img, err := index.Image(d.Digest)
			if err != nil {
				return err
			}
			m, err := img.Manifest()
			if err == nil {
				err = s.checkBlob(m.Config.Digest)
			}
			if err != nil {
				return err
			}
			found[d.Digest] = img
		}
	}
	return nil
}
