package main

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// layer is the layer of a source.
func (r *recipe) layer(source string) (v1.Layer, error) {
	capable := ""
	if r.hasCapabilities {
		capable = r.config.Entrypoint[0]
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		out, in := io.Pipe()
		go func() { in.CloseWithError(pack(in, source, r.created, capable)) }() // ends when out is closed
		return out, nil
	}, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
}

// pack writes a tar of a program, or of a folder's content, the same for the same files: in lexical order, owned by
// 0:0, all of one time. capable is the path of a file with capabilities; empty: there is none.
func pack(w io.Writer, source string, at time.Time, capable string) error {
	archive := tar.NewWriter(w)
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	root := source
	if !info.IsDir() {
		root = filepath.Dir(source)
	}
	hasCapable := capable == ""
	err = filepath.WalkDir(source, func(file string, d fs.DirEntry, err error) error {
		if err != nil || file == root {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		below, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		h := &tar.Header{Name: below, ModTime: at, Format: tar.FormatPAX}
		if "/"+h.Name == capable && info.Mode().IsRegular() {
			hasCapable = true
			h.PAXRecords = map[string]string{"SCHILY.xattr.security.capability": capabilities}
		}
		return writeEntry(archive, h, file, info)
	})
	if err == nil && !hasCapable {
		err = errors.New(capable + " is to have capabilities, and is no file of the image")
	}
	return errors.Join(err, archive.Close())
}

// writeEntry writes one entry. Of a file's own mode only that it is executable counts, and of a folder's that it is
// sticky, as /tmp: umasks differ.
func writeEntry(archive *tar.Writer, h *tar.Header, file string, info fs.FileInfo) (err error) {
	switch mode := info.Mode(); {
	case mode.IsDir() && mode&fs.ModeSticky != 0:
		h.Typeflag, h.Mode = tar.TypeDir, 0o1777
	case mode.IsDir():
		h.Typeflag, h.Mode = tar.TypeDir, 0o755
	case mode&fs.ModeSymlink != 0:
		h.Typeflag, h.Mode = tar.TypeSymlink, 0o777
		if h.Linkname, err = os.Readlink(file); err != nil {
			return err
		}
	case mode&0o111 != 0:
		h.Typeflag, h.Mode, h.Size = tar.TypeReg, 0o755, info.Size()
	default:
		h.Typeflag, h.Mode, h.Size = tar.TypeReg, 0o644, info.Size()
	}
	if h.Typeflag == tar.TypeDir {
		h.Name += "/"
	}
	if err := archive.WriteHeader(h); err != nil || h.Typeflag != tar.TypeReg {
		return err
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	_, err = io.Copy(archive, f)
	return err
}

// capabilities is the extended attribute of revision 2 (linux/capability.h, struct vfs_cap_data) with setpcap and
// net_admin, bits 8 and 12. Its effective flag is off: with it a program could not even start where the container's
// bounding set lacks one of them.
const capabilities = "\x00\x00\x00\x02" + // the revision
	"\x00\x11\x00\x00" + "\x00\x00\x00\x00" + // permitted and inheritable
	"\x00\x00\x00\x00" + "\x00\x00\x00\x00" // the same for the bits 32 to 63
