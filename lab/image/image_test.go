package main

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/lastcall-dev/lastcall/internal/must"
)

func TestSameFilesSameArchive(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	var archives [][]byte
	for i, at := range []time.Time{time.Unix(1, 0), time.Unix(1_800_000_000, 0)} {
		dir := t.TempDir()
		mode := os.FileMode(0o755 - 0o055*i) // another umask
		create(t, filepath.Join(dir, "tree/program"), "program", mode, at)
		create(t, filepath.Join(dir, "tree/b"), "b", 0o644-os.FileMode(0o044*i), at)
		create(t, filepath.Join(dir, "tree/a"), "a", 0o644, at)
		output := filepath.Join(dir, "out", "image.tar")
		err := run([]string{"-name", "example/program:1", "-output", output, dir + "/tree", "/program"})
		must.Do(t, err)
		text, err := os.ReadFile(output)
		must.Do(t, err)
		archives = append(archives, text)
		left, err := os.ReadDir(filepath.Dir(output))
		if err != nil || len(left) != 1 {
			t.Errorf("next to the output there is %v (%v)", left, err)
		}
	}
	if !bytes.Equal(archives[0], archives[1]) {
		t.Error("the same files at other times made another archive")
	}
}

func TestImageHasItsOptions(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	dir := t.TempDir()
	create(t, filepath.Join(dir, "tree/bin/program"), "program", 0o700, time.Now())
	create(t, filepath.Join(dir, "tree/data/deep/file"), "text", 0o600, time.Now())
	must.Do(t, os.Symlink("deep/file", filepath.Join(dir, "tree/data/link")))
	must.Do(t, os.Mkdir(filepath.Join(dir, "tree/tmp"), 0o755))
	must.Do(t, os.Chmod(filepath.Join(dir, "tree/tmp"), 0o777|os.ModeSticky))
	output := filepath.Join(dir, "image.tar")
	err := run([]string{"-name", "example/program:1", "-capabilities", "-env", "A=b", "-user", "1337:1337",
		"-label", "title=a, b=c", "-output", output, dir + "/tree", "/bin/program", "serve", "--fast"})
	must.Do(t, err)
	index := unpack(t, output)
	var names []string
	for _, d := range children(t, index) {
		names = append(names, d.Annotations["io.containerd.image.name"]+" "+d.Annotations["org.opencontainers.image.ref.name"])
	}
	if want := []string{"docker.io/example/program:1 1"}; !slices.Equal(names, want) {
		t.Errorf("named %q, want %q", names, want)
	}
	img, err := index.Image(children(t, index)[0].Digest)
	must.Do(t, err)
	config, err := img.ConfigFile()
	must.Do(t, err)
	c := config.Config
	if config.Architecture != runtime.GOARCH || config.Created.Unix() != 1700000000 || c.User != "1337:1337" || c.WorkingDir != "/" ||
		!slices.Equal(c.Entrypoint, []string{"/bin/program"}) || !slices.Equal(c.Cmd, []string{"serve", "--fast"}) || !slices.Equal(c.Env, []string{"A=b"}) {
		t.Errorf("configuration %+v", config)
	}
	labels := map[string]string{"org.opencontainers.image.title": "a, b=c", "org.opencontainers.image.created": "2023-11-14T22:13:20Z"}
	if !maps.Equal(c.Labels, labels) {
		t.Errorf("labels %v, want %v", c.Labels, labels)
	}
	manifest, err := img.Manifest()
	must.Do(t, err)
	if !maps.Equal(manifest.Annotations, labels) {
		t.Errorf("annotations %v, want %v", manifest.Annotations, labels)
	}
	headers, contents := layerOf(t, img)
	var all []string
	for name, h := range headers {
		all = append(all, name+" "+os.FileMode(h.Mode&0o777).String()+" "+h.Linkname)
		if h.Uid != 0 || h.Gid != 0 || h.Uname != "" || h.ModTime.Unix() != 1700000000 {
			t.Errorf("%s: owner %d:%d %q, time %v", name, h.Uid, h.Gid, h.Uname, h.ModTime)
		}
	}
	slices.Sort(all)
	want := []string{"bin/ -rwxr-xr-x ", "bin/program -rwxr-xr-x ", "data/ -rwxr-xr-x ", "data/deep/ -rwxr-xr-x ", "data/deep/file -rw-r--r-- ",
		"data/link -rwxrwxrwx deep/file", "tmp/ -rwxrwxrwx "}
	if !slices.Equal(all, want) {
		t.Errorf("the layer holds\n%q, want\n%q", all, want)
	}
	capabilities := "\x00\x00\x00\x02\x00\x11\x00\x00" + strings.Repeat("\x00", 12)
	if got := headers["bin/program"].PAXRecords["SCHILY.xattr.security.capability"]; got != capabilities {
		t.Errorf("capabilities %q, want %q", got, capabilities)
	}
	if headers["tmp/"].Mode != 0o1777 || string(contents["data/deep/file"]) != "text" {
		t.Errorf("/tmp has mode %o, /data/deep/file %q", headers["tmp/"].Mode, contents["data/deep/file"])
	}
}

func TestOneIndexForSeveralPlatforms(t *testing.T) {
	dir := t.TempDir()
	for _, arch := range []string{"amd64", "arm64"} {
		create(t, filepath.Join(dir, "linux-"+arch, "program"), arch, 0o755, time.Now())
	}
	output := filepath.Join(dir, "image.tar")
	err := run([]string{"-name", "example/program:1", "-output", output, dir + "/linux-{arch}/program", "/program"})
	must.Do(t, err)
	layoutIndex := unpack(t, output)
	top := children(t, layoutIndex)
	if len(top) != 1 || !top[0].MediaType.IsIndex() {
		t.Fatalf("index.json holds %+v, want one index", top)
	}
	index, err := layoutIndex.ImageIndex(top[0].Digest)
	must.Do(t, err)
	list := children(t, index)
	if len(list) != 2 {
		t.Fatalf("%d manifests, want an image for each platform", len(list))
	}
	for i, arch := range []string{"amd64", "arm64"} {
		img, err := index.Image(list[i].Digest)
		must.Do(t, err)
		if err := validate.Image(img); err != nil {
			t.Error(err)
		}
		_, contents := layerOf(t, img)
		if list[i].Platform.Architecture != arch || !strings.HasSuffix(string(contents["program"]), arch) {
			t.Errorf("the image for %s is another's", list[i].Platform)
		}
	}
}

func TestRefused(t *testing.T) {
	dir := t.TempDir()
	create(t, filepath.Join(dir, "program"), "program", 0o755, time.Now())
	for want, args := range map[string][]string{
		"must be NAME:TAG": {"-name", "A/c:1", "-output", dir + "/out.tar", dir + "/program", "/program"},
		"are required":     {"-name", "a/c:1", "-output", dir + "/out.tar", dir + "/program"},
		"no such file":     {"-name", "a/c:1", "-output", dir + "/out.tar", dir + "/nothing", "/nothing"},
		"no file of":       {"-name", "a/c:1", "-output", dir + "/out.tar", "-capabilities", dir + "/program", "/other"},
		"not a directory":  {"-name", "a/c:1", "-output", dir + "/program/out.tar", dir + "/program", "/program"},
	} {
		if err := run(args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one with %q", args, err, want)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("left behind: %v %v", left, err)
	}
	t.Setenv("SOURCE_DATE_EPOCH", "yesterday")
	err = run([]string{"-name", "a/c:1", "-output", dir + "/out.tar", dir + "/program", "/program"})
	if err == nil || !strings.Contains(err.Error(), "must be seconds") {
		t.Errorf("SOURCE_DATE_EPOCH: %v", err)
	}
}
