package main

import (
	"bytes"
	"context"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

func TestPush(t *testing.T) {
	server := httptest.NewServer(registry.New())
	defer server.Close()
	at := strings.TrimPrefix(server.URL, "http://")
	dir := t.TempDir()
	write(t, dir+"/program", "program", 0o755, time.Now())
	build := func(image string) string {
		archive := filepath.Join(dir, "image.tar")
		err := run([]string{"--name", image, "--file", dir + "/program=/program", "--entrypoint", "/program",
			"--platform", "linux/amd64,linux/arm64", "--output", archive})
		if err != nil {
			t.Fatal(err)
		}
		return archive
	}

	archive := build(at + "/team/program:1")
	var out bytes.Buffer
	if err := push(t.Context(), archive, &out); err != nil {
		t.Fatal(err)
	}
	pushed := strings.TrimSpace(out.String())
	if !strings.HasPrefix(pushed, at+"/team/program:1@sha256:") {
		t.Errorf("pushed %q", pushed)
	}
	for _, text := range []string{at + "/team/program:1", pushed} {
		ref, err := name.ParseReference(text)
		if err != nil {
			t.Fatal(err)
		}
		index, err := remote.Index(ref)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate.Index(index); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		manifest, err := index.IndexManifest()
		if err != nil || len(manifest.Manifests) != 2 {
			t.Errorf("%s has the platforms %v (error %v), want two", text, manifest, err)
		}
	}
	if left, err := filepath.Glob(dir + "/.push-*"); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}

	if err := push(t.Context(), build("localhost/program:1"), &out); err == nil || !strings.Contains(err.Error(), "REGISTRY=") {
		t.Errorf("an image without a registry: error %v", err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := push(ended, archive, &out); err == nil {
		t.Error("pushed although its context had ended")
	}
}
