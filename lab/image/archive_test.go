package main

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"

	"github.com/lastcall-dev/lastcall/internal/must"
)

// create creates a file with content and the modification time at.
func create(t *testing.T, name, content string, mode os.FileMode, at time.Time) {
	t.Helper()
	must.Do(t, os.MkdirAll(filepath.Dir(name), 0o755))
	must.Do(t, os.WriteFile(name, []byte(content), mode))
	must.Do(t, os.Chtimes(name, at, at))
}

// members are the files of a tar by name.
func members(t *testing.T, r io.Reader) (map[string]*tar.Header, map[string][]byte) {
	t.Helper()
	headers, contents := map[string]*tar.Header{}, map[string][]byte{}
	for archive := tar.NewReader(r); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return headers, contents
		}
		must.Do(t, err)
		headers[h.Name] = h
		if contents[h.Name], err = io.ReadAll(archive); err != nil {
			t.Fatal(err)
		}
	}
}

// unpack lays a layout's tar out as a folder.
func unpack(t *testing.T, name string) v1.ImageIndex {
	t.Helper()
	f, err := os.Open(name)
	must.Do(t, err)
	defer func() { _ = f.Close() }()
	headers, contents := members(t, f)
	at := t.TempDir()
	for name, h := range headers {
		if h.Typeflag == tar.TypeReg {
			create(t, filepath.Join(at, name), string(contents[name]), 0o644, time.Now())
		}
	}
	index, err := layout.ImageIndexFromPath(at)
	must.Do(t, err)
	return index
}

func children(t *testing.T, index v1.ImageIndex) []v1.Descriptor {
	t.Helper()
	m, err := index.IndexManifest()
	must.Do(t, err)
	return m.Manifests
}

func layerOf(t *testing.T, img v1.Image) (map[string]*tar.Header, map[string][]byte) {
	t.Helper()
	layers, err := img.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("layers %v, error %v", layers, err)
	}
	r, err := layers[0].Uncompressed()
	must.Do(t, err)
	defer func() { _ = r.Close() }()
	return members(t, r)
}
