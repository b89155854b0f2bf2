package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// push uploads the images of an OCI archive to the registries in their names and
// writes each reference with its digest, one per line. Credentials are those of
// docker login and podman login.
func push(ctx context.Context, archive string, stdout io.Writer) (err error) {
	dir, err := os.MkdirTemp(filepath.Dir(archive), ".push-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := extractAll(archive, dir); err != nil {
		return fmt.Errorf("read %s: %w", archive, err)
	}
	top, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return fmt.Errorf("read %s as an OCI archive: %w", archive, err)
	}
	manifest, err := top.IndexManifest()
	if err != nil {
		return fmt.Errorf("read %s as an OCI archive: %w", archive, err)
	}
	for _, d := range manifest.Manifests {
		full := d.Annotations[annotationFullName]
		tag, err := name.NewTag(full)
		if err != nil {
			return fmt.Errorf("image name %q in %s: %w", full, archive, err)
		}
		if tag.RegistryStr() == "localhost" {
			return fmt.Errorf("%s names no registry: build it with make image REGISTRY=registry.example.com/team", full)
		}
		if err := upload(ctx, top, d, tag); err != nil {
			return fmt.Errorf("push %s: %w", full, err)
		}
		if _, err := fmt.Fprintf(stdout, "%s@%s\n", full, d.Digest); err != nil {
			return err
		}
	}
	return nil
}

func upload(ctx context.Context, top v1.ImageIndex, d v1.Descriptor, tag name.Tag) error {
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	switch d.MediaType {
	case types.OCIImageIndex:
		index, err := top.ImageIndex(d.Digest)
		if err != nil {
			return err
		}
		return remote.WriteIndex(tag, index, options...)
	case types.OCIManifestSchema1:
		image, err := top.Image(d.Digest)
		if err != nil {
			return err
		}
		return remote.Write(tag, image, options...)
	}
	return fmt.Errorf("unexpected media type %s", d.MediaType)
}

// extractAll extracts an archive that pack made: folders and regular files.
func extractAll(archive, dir string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for entries := tar.NewReader(f); ; {
		header, err := entries.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		at := strings.TrimSuffix(header.Name, "/")
		switch header.Typeflag {
		case tar.TypeDir:
			err = root.MkdirAll(at, 0o755)
		case tar.TypeReg:
			err = extractFile(root, at, entries)
		default:
			err = fmt.Errorf("%s is neither a file nor a folder", header.Name)
		}
		if err != nil {
			return err
		}
	}
}

func extractFile(root *os.Root, at string, from io.Reader) error {
	out, err := root.Create(at)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, from)
	return errors.Join(err, out.Close())
}
