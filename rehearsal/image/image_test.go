package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/compression"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// entry is one of a tar: a folder if its name ends with a slash, a link if it has a target, or else a file.
type entry struct {
	name, content string
	symlink       string
	hardlink      string
}

func archive(t *testing.T, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Mode: 0o755, Size: int64(len(e.content)), Typeflag: tar.TypeReg}
		switch {
		case strings.HasSuffix(e.name, "/"):
			h.Typeflag, h.Mode = tar.TypeDir, 0o555
		case e.symlink != "":
			h.Typeflag, h.Linkname = tar.TypeSymlink, e.symlink
		case e.hardlink != "":
			h.Typeflag, h.Linkname = tar.TypeLink, e.hardlink
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// build makes an image with a layer for each tar, the first one by gzip and the others by zstd.
func build(t *testing.T, architecture string, layers ...[]byte) v1.Image {
	t.Helper()
	img := empty.Image
	config := &v1.ConfigFile{OS: "linux", Architecture: architecture, Config: v1.Config{Entrypoint: []string{"/web"}, ExposedPorts: map[string]struct{}{"8080/tcp": {}}}}
	img, err := mutate.ConfigFile(img, config)
	if err != nil {
		t.Fatal(err)
	}
	for i, content := range layers {
		how := compression.ZStd
		if i == 0 {
			how = compression.GZip
		}
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }, tarball.WithCompression(how))
		if err != nil {
			t.Fatal(err)
		}
		if img, err = mutate.AppendLayers(img, layer); err != nil {
			t.Fatal(err)
		}
	}
	return img
}

// asDocker writes an image as docker save does.
func asDocker(t *testing.T, img v1.Image) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "docker.tar")
	if err := tarball.WriteToFile(file, name.MustParseReference("web:test"), img); err != nil {
		t.Fatal(err)
	}
	return file
}

// asOCI writes a tar of an OCI layout with an index for several processors.
func asOCI(t *testing.T, images ...v1.Image) string {
	t.Helper()
	inner := v1.ImageIndex(empty.Index)
	for _, img := range images {
		config, err := img.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		inner = mutate.AppendManifests(inner, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: config.Platform()}})
	}
	dir := t.TempDir()
	if _, err := layout.Write(dir, mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: inner})); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "oci.tar")
	out, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(out)
	if err := w.AddFS(os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	return file
}

// compressed is a copy of a file by gzip.
func compressed(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file+".gz", b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return file + ".gz"
}

// all lists a folder: files with their content, links with their target.
func all(t *testing.T, root string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(at string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(at)
		if d.Type()&fs.ModeSymlink != 0 {
			var target string
			target, err = os.Readlink(at)
			text = []byte("-> " + target)
		}
		found = append(found, strings.TrimPrefix(at, root+"/")+" "+string(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// Upper layers add, replace and remove what lower ones have, in each kind of file.
func TestUnpack(t *testing.T) {
	img := build(t, runtime.GOARCH,
		archive(t, entry{name: "./"}, entry{name: "./usr/lib/"}, entry{name: "lib", symlink: "usr/lib"}, entry{name: "web", content: "old"}, entry{name: "gone", content: "x"},
			entry{name: "cache/old", content: "x"}, entry{name: "cache/deep/old", content: "x"}, entry{name: "folder/file", content: "x"}, entry{name: "file", content: "x"},
			entry{name: "kept/file", content: "kept"}, entry{name: "run", symlink: "/var/run"}),
		archive(t, entry{name: "/web", content: "new"}, entry{name: "other", hardlink: "web"}, entry{name: ".wh.gone"}, entry{name: "cache/new", content: "new"}, entry{name: "cache/.wh..wh..opq"},
			entry{name: "folder", content: "a file"}, entry{name: "file/"}, entry{name: "file/below", content: "in a folder"}, entry{name: "kept/"}, entry{name: "lib/c.so", content: "library"},
			entry{name: ".wh..wh.aufs", content: "x"}, entry{name: ".wh.absent"}),
	)
	want := []string{"cache/new new", "file/below in a folder", "folder a file", "kept/file kept", "lib -> usr/lib", "other new", "run -> /var/run", "usr/lib/c.so library", "web new"}
	foreign := build(t, "s390x", archive(t, entry{name: "web", content: "foreign"}))
	docker := asDocker(t, img)
	for _, file := range []string{docker, compressed(t, docker), asOCI(t, foreign, img), compressed(t, asOCI(t, img))} {
		dir := t.TempDir()
		got, err := Unpack(file, dir)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if files := all(t, got.Root); !slices.Equal(files, want) {
			t.Errorf("%s: files\n%s\nwant\n%s", file, strings.Join(files, "\n"), strings.Join(want, "\n"))
		}
		if got.Port() != 8080 || !slices.Equal(got.Config.Entrypoint, []string{"/web"}) {
			t.Errorf("%s: configuration %+v", file, got.Config)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
			t.Errorf("%s: left in the folder: %v, %v", file, left, err)
		}
	}
}

// No name and no link leads out of the folder, and neither files nor bytes exceed their limits.
func TestAttacks(t *testing.T) {
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "victim"), []byte("victim"), 0o644); err != nil {
		t.Fatal(err)
	}
	up := strings.Repeat("../", 20)
	for name, entries := range map[string][]entry{
		"a name with ..":                  {{name: "../evil", content: "x"}},
		"an absolute name with ..":        {{name: "/../../evil", content: "x"}},
		"a name below ..":                 {{name: "a/../../evil", content: "x"}},
		"through an absolute link":        {{name: "a", symlink: outside}, {name: "a/victim", content: "x"}},
		"through a relative link":         {{name: "a", symlink: up + outside[1:]}, {name: "a/victim", content: "x"}},
		"through two links":               {{name: "a", symlink: "b"}, {name: "b", symlink: outside}, {name: "a/victim", content: "x"}},
		"a folder through a link":         {{name: "a", symlink: outside}, {name: "a/evil/"}},
		"a link through a link":           {{name: "a", symlink: outside}, {name: "a/evil", symlink: "x"}},
		"a hard link to a name with ..":   {{name: "a", hardlink: up + outside[1:] + "/victim"}},
		"a hard link through a link":      {{name: "a", symlink: outside}, {name: "b", hardlink: "a/victim"}},
		"a whiteout through a link":       {{name: "a", symlink: outside}, {name: "a/.wh.victim"}},
		"an opaque folder through a link": {{name: "a", symlink: outside}, {name: "a/.wh..wh..opq"}},
		"a whiteout of ..":                {{name: "a/.wh..."}},
		"a whiteout of nothing":           {{name: "a/.wh."}},
		"too many bytes":                  {{name: "a", content: strings.Repeat("x", 600)}, {name: "b", content: strings.Repeat("x", 600)}},
		"too many files":                  slices.Repeat([]entry{{name: "a/"}}, 21),
	} {
		root := filepath.Join(t.TempDir(), "root")
		tr, err := newTree(root, limits{bytes: 1000, files: 20})
		if err != nil {
			t.Fatal(err)
		}
		err = tr.add(bytes.NewReader(archive(t, entries...)), true)
		tr.close()
		if err == nil {
			t.Errorf("%s: no error", name)
		}
		if found := all(t, outside); !slices.Equal(found, []string{"victim victim"}) {
			t.Fatalf("%s: files outside: %q", name, found)
		}
		if found, err := os.ReadDir(filepath.Dir(root)); err != nil || len(found) != 1 {
			t.Fatalf("%s: files next to the image's: %v, %v", name, found, err)
		}
	}
	// A file in place of a link replaces the link, not its target.
	tr, err := newTree(t.TempDir(), defaults)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.close()
	if err := tr.add(bytes.NewReader(archive(t, entry{name: "a", symlink: outside + "/victim"}, entry{name: "a", content: "x"})), true); err != nil {
		t.Error(err)
	}
	if found := all(t, outside); !slices.Equal(found, []string{"victim victim"}) {
		t.Errorf("files outside: %q", found)
	}
}

func TestWrongFiles(t *testing.T) {
	write := func(content []byte) string {
		file := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(file, content, 0o644); err != nil {
			t.Fatal(err)
		}
		return file
	}
	foreign := build(t, "s390x", archive(t, entry{name: "web"}))
	one, two := build(t, runtime.GOARCH, archive(t, entry{name: "one"})), build(t, runtime.GOARCH, archive(t, entry{name: "two"}))
	long := strings.Repeat(" ", maxJSON+1)
	for file, want := range map[string]string{
		filepath.Join(t.TempDir(), "absent"):                           "no such file",
		write([]byte("a text that is no tar")):                         "it is not a tar",
		write([]byte("\x1f\x8bx")):                                     "unpack",
		write(archive(t, entry{name: "etc/passwd"})):                   "it is not an image",
		write(archive(t, entry{name: "manifest.json", content: long})): "manifest.json has 16777217 bytes",
		write(archive(t, entry{name: "manifest.json", content: `[{"Config":"c.json"}]`}, entry{name: "c.json", content: long})): "c.json has 16777217 bytes",
		write(archive(t, entry{name: "manifest.json", content: "[]"})):                                                          "single image",
		write(archive(t, entry{name: "oci-layout", content: "{}"}, entry{name: "index.json", content: "[]"})):                   "cannot unmarshal",
		asDocker(t, foreign):   "the image is for s390x: this machine needs one for linux/" + runtime.GOARCH,
		asOCI(t, foreign):      "it has 0 images for linux/" + runtime.GOARCH,
		asOCI(t, one, two):     "it has 2 images for linux/" + runtime.GOARCH,
		asOCI(t, one, foreign): "",
	} {
		_, err := Unpack(file, t.TempDir())
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: error %v, want %q", file, err, want)
		}
	}
}
