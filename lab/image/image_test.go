package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

func TestSameFilesSameArchive(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	for _, format := range []string{"oci", "docker"} {
		var archives [][]byte
		for i, at := range []time.Time{time.Unix(1, 0), time.Unix(1_800_000_000, 0)} {
			dir := t.TempDir()
			mode := os.FileMode(0o755 - 0o055*i) // another umask
			write(t, filepath.Join(dir, "program"), "program", mode, at)
			write(t, filepath.Join(dir, "tree/b"), "b", 0o644-os.FileMode(0o044*i), at)
			write(t, filepath.Join(dir, "tree/a"), "a", 0o644, at)
			output := filepath.Join(dir, "out", "image.tar")
			err := run([]string{"--name", "example/program:1", "--file", dir + "/program=/program", "--file", dir + "/tree=/data",
				"--entrypoint", "/program", "--format", format, "--sbom", dir + "/sbom.json", "--output", output})
			if err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(output)
			if err != nil {
				t.Fatal(err)
			}
			archives = append(archives, text)
			left, err := os.ReadDir(filepath.Dir(output))
			if err != nil || len(left) != 1 {
				t.Errorf("next to the output there is %v (%v)", left, err)
			}
		}
		if !bytes.Equal(archives[0], archives[1]) {
			t.Errorf("%s: the same files at other times made another archive", format)
		}
	}
}

func TestImageHasItsOptions(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	dir := t.TempDir()
	write(t, filepath.Join(dir, "program"), "program", 0o600, time.Now())
	write(t, filepath.Join(dir, "tree/deep/file"), "text", 0o644, time.Now())
	if err := os.Symlink("deep/file", filepath.Join(dir, "tree/link")); err != nil {
		t.Fatal(err)
	}
	output := filepath.Join(dir, "image.tar")
	err := run([]string{"--name", "example/program:1", "--name", "example.com/other:2", "--platform", "linux/amd64",
		"--file", dir + "/program=/bin/program:0555", "--file", dir + "/tree=/data", "--dir", "/tmp:1777",
		"--entrypoint", "/bin/program", "--cmd", "serve", "--cmd", "--fast", "--env", "A=b", "--user", "1337:1337",
		"--label", "org.opencontainers.image.title=program", "--label", "own=word", "--output", output})
	if err != nil {
		t.Fatal(err)
	}
	index := unpack(t, output)
	var names []string
	for _, d := range children(t, index) {
		names = append(names, d.Annotations["io.containerd.image.name"]+" "+d.Annotations["org.opencontainers.image.ref.name"])
	}
	if want := []string{"docker.io/example/program:1 1", "example.com/other:2 2"}; !slices.Equal(names, want) {
		t.Errorf("named %q, want %q", names, want)
	}
	img, err := index.Image(children(t, index)[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c := config.Config
	if config.Architecture != "amd64" || config.Created.Unix() != 1700000000 || c.User != "1337:1337" || c.WorkingDir != "/" ||
		!slices.Equal(c.Entrypoint, []string{"/bin/program"}) || !slices.Equal(c.Cmd, []string{"serve", "--fast"}) || !slices.Equal(c.Env, []string{"A=b"}) {
		t.Errorf("configuration %+v", config)
	}
	labels := map[string]string{"own": "word", "org.opencontainers.image.title": "program", "org.opencontainers.image.created": "2023-11-14T22:13:20Z"}
	if !maps.Equal(c.Labels, labels) {
		t.Errorf("labels %v, want %v", c.Labels, labels)
	}
	manifest, err := img.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	delete(labels, "own")
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
	want := []string{"bin/ -rwxr-xr-x ", "bin/program -r-xr-xr-x ", "data/ -rwxr-xr-x ", "data/deep/ -rwxr-xr-x ", "data/deep/file -rw-r--r-- ",
		"data/link -rwxrwxrwx deep/file", "tmp/ -rwxrwxrwx "}
	if !slices.Equal(all, want) {
		t.Errorf("the layer holds\n%q, want\n%q", all, want)
	}
	if headers["tmp/"].Mode != 0o1777 || string(contents["data/deep/file"]) != "text" {
		t.Errorf("/tmp has mode %o, /data/deep/file %q", headers["tmp/"].Mode, contents["data/deep/file"])
	}
}

func TestOneIndexForSeveralPlatforms(t *testing.T) {
	dir := t.TempDir()
	out, err := exec.Command("go", "build", "-o", dir+"/program", "./testdata/program").CombinedOutput()
	if err != nil {
		t.Fatalf("build a Go program: %v\n%s", err, out)
	}
	for _, arch := range []string{"amd64", "arm64"} {
		text, err := os.ReadFile(dir + "/program")
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "linux-"+arch, "program"), string(text)+arch, 0o755, time.Now())
	}
	output := filepath.Join(dir, "image.tar")
	err = run([]string{"--name", "example/program:1", "--platform", "linux/amd64,linux/arm64", "--file", dir + "/{os}-{arch}/program=/program",
		"--entrypoint", "/program", "--label", "org.opencontainers.image.licenses=Apache-2.0", "--sbom", dir + "/{os}-{arch}.json", "--output", output})
	if err != nil {
		t.Fatal(err)
	}
	layoutIndex := unpack(t, output)
	top := children(t, layoutIndex)
	if len(top) != 1 || !top[0].MediaType.IsIndex() {
		t.Fatalf("index.json holds %+v, want one index", top)
	}
	index, err := layoutIndex.ImageIndex(top[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	list := children(t, index)
	if len(list) != 4 {
		t.Fatalf("%d manifests, want an image and an attestation for each platform", len(list))
	}
	for i, arch := range []string{"amd64", "arm64"} {
		img, err := index.Image(list[i].Digest)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate.Image(img); err != nil {
			t.Error(err)
		}
		_, contents := layerOf(t, img)
		if list[i].Platform.Architecture != arch || !strings.HasSuffix(string(contents["program"]), arch) {
			t.Errorf("the image for %s is another's", list[i].Platform)
		}
		checkAttestation(t, index, list[i], list[i+2], filepath.Join(dir, "linux-"+arch+".json"))
	}
}

// checkAttestation checks that the attestation is about that image and equals the file next to it.
func checkAttestation(t *testing.T, index v1.ImageIndex, of, attestation v1.Descriptor, beside string) {
	t.Helper()
	if attestation.Platform.OS != "unknown" || attestation.Annotations["vnd.docker.reference.digest"] != of.Digest.String() {
		t.Errorf("the attestation %+v is not of %s", attestation, of.Digest)
	}
	img, err := index.Image(attestation.Digest)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := img.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("layers %v, error %v", layers, err)
	}
	r, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	var signed statement
	if err := json.NewDecoder(r).Decode(&signed); err != nil {
		t.Fatal(err)
	}
	var attested, written spdxDocument
	text, err := os.ReadFile(beside)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(json.Unmarshal(signed.Predicate, &attested), json.Unmarshal(text, &written)); err != nil {
		t.Fatal(err)
	}
	if signed.Subject[0].Digest["sha256"] != of.Digest.Hex || attested.DocumentNamespace != written.DocumentNamespace {
		t.Errorf("the attestation is %s of %v, the file %s", attested.DocumentNamespace, signed.Subject, written.DocumentNamespace)
	}
	ids := map[string]bool{spdxDocumentID: true}
	found := map[string]string{}
	for _, p := range written.Packages {
		if ids[p.ID] {
			t.Errorf("%s is there twice", p.ID)
		}
		ids[p.ID], found[p.Name] = true, p.Version
		if p.Purpose == "APPLICATION" && p.LicenseDeclared != "Apache-2.0" {
			t.Errorf("%s has license %s", p.Name, p.LicenseDeclared)
		}
	}
	if found["stdlib"] == "" || found["github.com/spf13/pflag"] == "" {
		t.Errorf("the list lacks the standard library or what the program is built with: %v", found)
	}
	for _, relation := range written.Relationships {
		if !ids[relation.From] || !ids[relation.To] {
			t.Errorf("%+v is about something that is not listed", relation)
		}
	}
}

func TestDockerArchive(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "program"), "program", 0o755, time.Now())
	output := filepath.Join(dir, "image.tar")
	err := run([]string{"--name", "example/program:1", "--file", dir + "/program=/program", "--entrypoint", "/program", "--format", "docker", "--output", output})
	if err != nil {
		t.Fatal(err)
	}
	img, err := tarball.ImageFromPath(output, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Image(img); err != nil {
		t.Error(err)
	}
	manifest, err := tarball.LoadManifest(func() (io.ReadCloser, error) { return os.Open(output) })
	if err != nil || len(manifest) != 1 || !slices.Equal(manifest[0].RepoTags, []string{"example/program:1"}) {
		t.Errorf("manifest %+v, error %v", manifest, err)
	}
}

func TestRefused(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "program"), "program", 0o755, time.Now())
	write(t, filepath.Join(dir, "text"), "text", 0o644, time.Now())
	good := []string{"--name", "a/b:1", "--file", dir + "/program=/program", "--entrypoint", "/program", "--output", dir + "/out.tar"}
	for name, c := range map[string]struct {
		more []string
		says string
		code bool // it is the caller's
	}{
		"no tag":              {[]string{"--name", "a/c"}, "has no tag", true},
		"bad name":            {[]string{"--name", "A/c:1"}, "must be NAME:TAG", true},
		"platform":            {[]string{"--platform", "linux"}, "must be OS/ARCH", true},
		"platform twice":      {[]string{"--platform", "linux/amd64,linux/amd64"}, "given twice", true},
		"file without dest":   {[]string{"--file", "x"}, "must be SRC=DEST", true},
		"file relative":       {[]string{"--file", "x=y"}, "not an absolute path", true},
		"mode":                {[]string{"--file", "x=/y:rwx"}, "not octal", true},
		"format":              {[]string{"--format", "zip"}, "must be oci or docker", true},
		"docker has one":      {[]string{"--format", "docker", "--platform", "linux/amd64,linux/arm64"}, "holds one platform", true},
		"user by name":        {[]string{"--user", "nobody"}, "must be numbers", true},
		"label":               {[]string{"--label", "x"}, "must be KEY=VALUE", true},
		"environment":         {[]string{"--env", "x"}, "must be KEY=VALUE", true},
		"one sbom for two":    {[]string{"--sbom", "x.json", "--platform", "linux/amd64,linux/arm64"}, "put {arch} into the name", true},
		"unknown capability":  {[]string{"--capabilities", "/program=sys_admin"}, "names among net_admin, setpcap", true},
		"capability of none":  {[]string{"--capabilities", "/other=setpcap"}, "no such file", false},
		"argument":            {[]string{"x"}, "takes no argument", true},
		"flag":                {[]string{"--nonsense"}, "unknown flag", true},
		"file missing":        {[]string{"--file", dir + "/nothing=/x"}, "no such file", false},
		"file as a folder":    {[]string{"--file", dir + "/text=/program/x"}, "cannot hold /program/x", false},
		"not to be executed":  {[]string{"--file", dir + "/text=/program"}, "no executable file", false},
		"output in no folder": {[]string{"--output", dir + "/text/out.tar"}, "not a directory", false},
	} {
		err := run(append(slices.Clone(good), c.more...))
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: error %v, want one with %q", name, err, c.says)
		}
		if u := (usage{}); errors.As(err, &u) != c.code {
			t.Errorf("%s: usage %v, want %v", name, !c.code, c.code)
		}
	}
	left, err := filepath.Glob(dir + "/.image-*")
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
	t.Setenv("SOURCE_DATE_EPOCH", "yesterday")
	if err := run(good); err == nil || !strings.Contains(err.Error(), "must be seconds") {
		t.Errorf("SOURCE_DATE_EPOCH: %v", err)
	}
}
