package main

import (
	"archive/tar"
	"io/fs"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Annotations with the name of an image in a layout: containerd's is the full name, OCI's the tag.
const (
	annotationFullName = "io.containerd.image.name"
	annotationRefName  = "org.opencontainers.image.ref.name"
)

// writeOCI writes a tar of an OCI image layout, made in the folder at.
func (r *recipe) writeOCI(output, at string, all []built) (digest v1.Hash, err error) {
	whole := r.whole(all)
	desc, err := partial.Descriptor(whole)
	if err != nil {
		return digest, err
	}
	top := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	named := map[string]string{annotationFullName: fullName(r.name), annotationRefName: r.name.TagStr()}
	descriptor := v1.Descriptor{Annotations: named, Platform: desc.Platform}
	top = mutate.AppendManifests(top, mutate.IndexAddendum{Add: whole, Descriptor: descriptor})
	if _, err := layout.Write(at, top); err != nil {
		return digest, err
	}
	return desc.Digest, pack(output, at)
}

// whole is the image itself for one platform, else an index.
func (r *recipe) whole(all []built) mutate.Appendable {
	if len(all) == 1 {
		return all[0].image
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, b := range all {
		descriptor := v1.Descriptor{Platform: &b.platform}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: b.image, Descriptor: descriptor})
	}
	return mutate.Annotations(index, r.annotations()).(v1.ImageIndex)
}

// pack tars a folder, the same for the same content. It contains no times, so that equal content has equal digests.
func pack(output, root string) (err error) {
	out, err := os.Create(output)
	if err != nil {
		return err
	}
	defer func() {
		if closed := out.Close(); err == nil {
			err = closed
		}
	}()
	archive := tar.NewWriter(out)
	err = filepath.WalkDir(root, func(at string, d fs.DirEntry, err error) error { // in lexical order
		if err != nil || at == root {
			return err
		}
		below, err := filepath.Rel(root, at)
		if err != nil {
			return err
		}
		e := entry{kind: tar.TypeReg, source: at, mode: 0o644}
		if d.IsDir() {
			e = parent
		}
		return writeEntry(archive, filepath.ToSlash(below), e, epoch)
	})
	if err != nil {
		return err
	}
	return archive.Close()
}
