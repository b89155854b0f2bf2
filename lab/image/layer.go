package main

import (
	"archive/tar"
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// entry is one thing in the layer.
type entry struct {
	kind   byte   // tar.TypeReg, TypeDir or TypeSymlink
	source string // of a file
	link   string // a symbolic link's target
	mode   int64

	permitted uint32 // file capabilities, as bits
}

// parent is a folder that holds something.
var parent = entry{kind: tar.TypeDir, mode: 0o755}

// entries are the layer's files for a platform, by path without the slash in front.
func (r *recipe) entries(p v1.Platform) (map[string]entry, error) {
	all := map[string]entry{}
	for _, f := range r.files {
		source := r.forPlatform(f.source, p)
		err := filepath.WalkDir(source, func(at string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			below, err := filepath.Rel(source, at)
			if err != nil {
				return err
			}
			if at == source { // what is named may itself be a link
				info, err := os.Stat(at)
				if err != nil {
					return err
				}
				d = fs.FileInfoToDirEntry(info)
			}
			return put(all, path.Join(f.dest, filepath.ToSlash(below)), at, d, f.mode)
		})
		if err != nil {
			return nil, fmt.Errorf("--file %s: %w", source, err)
		}
	}
	for _, d := range r.dirs {
		all[d.dest] = entry{kind: tar.TypeDir, mode: d.mode}
	}
	for dest, bits := range r.permitted {
		e, is := all[dest]
		if !is || e.kind != tar.TypeReg {
			return nil, fmt.Errorf("--capabilities /%s: the image has no such file", dest)
		}
		e.permitted = bits
		all[dest] = e
	}
	for _, dest := range slices.Collect(maps.Keys(all)) {
		for dir := path.Dir(dest); dir != "."; dir = path.Dir(dir) {
			if e, is := all[dir]; is && e.kind != tar.TypeDir {
				return nil, fmt.Errorf("/%s is a file, and cannot hold /%s", dir, dest)
			} else if !is {
				all[dir] = parent
			}
		}
	}
	delete(all, ".")
	delete(all, "")
	return all, nil
}

// put adds one entry. Of a file's own mode only that it is executable counts: umasks differ.
func put(all map[string]entry, dest, source string, d fs.DirEntry, mode int64) error {
	info, err := d.Info()
	if err != nil {
		return err
	}
	if mode == 0 {
		mode = 0o644
		if info.Mode()&0o111 != 0 {
			mode = 0o755
		}
	}
	switch {
	case d.IsDir():
		all[dest] = parent
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(source)
		if err != nil {
			return err
		}
		all[dest] = entry{kind: tar.TypeSymlink, link: target, mode: 0o777}
	case info.Mode().IsRegular():
		all[dest] = entry{kind: tar.TypeReg, source: source, mode: mode}
	default:
		return fmt.Errorf("%s is neither a file, a folder nor a link", source)
	}
	return nil
}

// writeLayer writes the layer's tar, the same for the same entries: sorted, owned by 0:0, all of one time.
func writeLayer(w io.Writer, all map[string]entry, at time.Time) error {
	archive := tar.NewWriter(w)
	for _, dest := range slices.Sorted(maps.Keys(all)) {
		if err := writeEntry(archive, dest, all[dest], at); err != nil {
			return fmt.Errorf("put /%s into the layer: %w", dest, err)
		}
	}
	return archive.Close()
}

func writeEntry(archive *tar.Writer, dest string, e entry, at time.Time) error {
	h := &tar.Header{Typeflag: e.kind, Name: dest, Linkname: e.link, Mode: e.mode, ModTime: at, Format: tar.FormatPAX}
	if e.kind == tar.TypeDir {
		h.Name += "/"
	}
	if e.kind != tar.TypeReg {
		return archive.WriteHeader(h)
	}
	f, err := os.Open(e.source)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	h.Size = info.Size()
	if e.permitted != 0 {
		h.PAXRecords = map[string]string{"SCHILY.xattr.security.capability": fileCapabilities(e.permitted)}
	}
	if err := archive.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.Copy(archive, f)
	return err
}

// fileCapabilities is the extended attribute of revision 2 (linux/capability.h, struct vfs_cap_data). Its effective
// flag is off: with it a program could not even start where the container's bounding set lacks one of them.
func fileCapabilities(permitted uint32) string {
	const revision2 = 0x02000000
	words := []uint32{revision2, permitted, 0, 0, 0} // permitted, inheritable, and both again for the bits 32 to 63
	var b []byte
	for _, w := range words {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	return string(b)
}
