package main

import (
	"archive/tar"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	labelPrefix  = "org.opencontainers.image."
	labelCreated = labelPrefix + "created"
)

// built is the image of one platform.
type built struct {
	platform v1.Platform
	image    v1.Image
}

// produce makes the image of the recipe and returns the digest that its names stand for.
func produce(r *recipe) (digest v1.Hash, err error) {
	folder := filepath.Dir(r.output)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return digest, err
	}
	scratch, err := os.MkdirTemp(folder, ".image-") // /tmp may be small, and is another file system
	if err != nil {
		return digest, err
	}
	defer func() {
		if removed := os.RemoveAll(scratch); err == nil {
			err = removed
		}
	}()
	var all []built
	for i, p := range r.platforms {
		b, err := r.build(p, filepath.Join(scratch, fmt.Sprintf("layer-%d.tar", i)))
		if err != nil {
			return digest, fmt.Errorf("%s: %w", p.String(), err)
		}
		all = append(all, b)
	}
	whole := filepath.Join(scratch, "whole")
	if digest, err = r.writeOCI(whole, filepath.Join(scratch, "layout"), all); err != nil {
		return digest, fmt.Errorf("write %s: %w", r.output, err)
	}
	return digest, os.Rename(whole, r.output)
}

// build makes the image of one platform. Its layer stays in the file layer, which must be there as long as the image.
func (r *recipe) build(p v1.Platform, layer string) (b built, err error) {
	b.platform = p
	entries, err := r.entries(p)
	if err != nil {
		return b, err
	}
	if program := r.program(); program != "" {
		if e, is := entries[program]; !is || e.kind == tar.TypeDir || e.mode&0o111 == 0 {
			return b, fmt.Errorf("the entry point /%s is no executable file of the image", program)
		}
	}
	f, err := os.Create(layer)
	if err != nil {
		return b, err
	}
	if err = writeLayer(f, entries, r.created); err != nil {
		_ = f.Close()
		return b, err
	}
	if err = f.Close(); err != nil {
		return b, err
	}
	b.image, err = r.image(p, layer)
	return b, err
}

// program is the path of the entry point, without the slash in front; empty if it is to be found by PATH.
func (r *recipe) program() string {
	if len(r.entrypoint) == 0 || !strings.HasPrefix(r.entrypoint[0], "/") {
		return ""
	}
	return r.entrypoint[0][1:]
}

func (r *recipe) image(p v1.Platform, layer string) (v1.Image, error) {
	content, err := tarball.LayerFromFile(layer, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
	if err != nil {
		return nil, err
	}
	created := v1.Time{Time: r.created}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err = mutate.ConfigFile(img, &v1.ConfigFile{
		Architecture: p.Architecture, OS: p.OS, Variant: p.Variant,
		Created: created,
		RootFS:  v1.RootFS{Type: "layers"},
		Config: v1.Config{
			Entrypoint: r.entrypoint, Cmd: r.command, Env: r.env, User: r.user, WorkingDir: "/", Labels: r.labels,
		},
	})
	if err != nil {
		return nil, err
	}
	history := v1.History{Created: created, CreatedBy: "lab/image"}
	img, err = mutate.Append(img, mutate.Addendum{Layer: content, History: history})
	if err != nil {
		return nil, err
	}
	return mutate.Annotations(img, r.annotations()).(v1.Image), nil
}

// annotations are the labels that registries show.
func (r *recipe) annotations() map[string]string {
	out := map[string]string{}
	for k, v := range r.labels {
		if strings.HasPrefix(k, labelPrefix) {
			out[k] = v
		}
	}
	return out
}
