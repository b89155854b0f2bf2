package manifest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
)

// maxFile is the limit of one file, in bytes. The largest manifests of public projects, files with all their
// CustomResourceDefinitions, have some 5 MB.
const maxFile = 32 << 20

// File is one file of the input, or standard input.
type File struct {
	Name     string // as the user wrote it, or below the folder that the user wrote; with slashes
	Text     []byte
	Objects  []*Object
	Problems []*Problem // parts of the text that are not in Objects
	InFolder bool       // true for a file of a folder that the user wrote
}

// Problem is a text that cannot be read.
type Problem struct {
	Line int // 0 for the whole file
	Err  error

	IsTemplate bool // the text is probably a template of Helm or another program, which that program must render
	IsForeign  bool // the text has neither a kind nor an apiVersion: it is no manifest, even if it were readable
}

func (p *Problem) Error() string {
	if p.Line == 0 {
		return p.Err.Error()
	}
	return fmt.Sprintf("line %d: %v", p.Line, p.Err)
}

func (p *Problem) String() string { return p.Error() }

func (p *Problem) Unwrap() error { return p.Err }

// Passes reports whether a problem is passed over: that of a folder's template, or of a file in it that is no manifest.
func (f *File) Passes(p *Problem) bool { return f.InFolder && (p.IsTemplate || p.IsForeign) }

// Serving returns the workloads whose pods serve clients, which Jobs do not, and what of the input is not read.
func Serving(files []*File) (all []*Workload, unread []string) {
	for _, f := range files {
		for _, p := range f.Problems {
			if !f.Passes(p) {
				unread = append(unread, fmt.Sprintf("%s: not readable: %v", f.Name, p))
			}
		}
		for _, o := range f.Objects {
			found, err := o.Workloads()
			if err != nil {
				unread = append(unread, fmt.Sprintf("%s: %s: %v", f.Name, o, err))
			}
			if why := o.Unread(found, err); why != "" {
				unread = append(unread, fmt.Sprintf("%s: %s %s", f.Name, o, why))
			}
			for _, w := range found {
				if !w.IsJob() {
					all = append(all, w)
				}
			}
		}
	}
	return all, unread
}

// Parse reads a text of YAML documents, or JSON.
func Parse(name string, text []byte) *File {
	f := &File{Name: name, Text: text}
	for _, d := range Documents(text) {
		objects, problems := d.Objects()
		d.root, d.isParsed = nil, false // of much memory, and few need their lines
		f.Problems = append(f.Problems, problems...)
		for _, o := range objects {
			o.File = f
		}
		f.Objects = append(f.Objects, objects...)
	}
	return f
}

// Read reads files, folders with all that is below them, patterns of filepath.Match, and "-" for stdin. In a folder,
// the files with the extensions yaml, yml and json count, except those in hidden folders. The files are in the order of
// the paths, and of their names within a folder; none is read twice. A file that cannot be read has a Problem. The
// error is a path that does not exist.
func Read(paths []string, stdin io.Reader) ([]*File, error) {
	var names []string
	seen, inFolder := map[string]bool{}, map[string]bool{}
	for _, path := range paths {
		found, err := expand(path)
		if err != nil {
			return nil, err
		}
		for _, name := range found {
			if !seen[name] {
				seen[name], inFolder[name] = true, name != path
				names = append(names, name)
			}
		}
	}
	files := make([]*File, len(names))
	var readers errgroup.Group
	readers.SetLimit(runtime.GOMAXPROCS(0))
	for i, name := range names {
		readers.Go(func() error {
			if text, err := ReadText(name, stdin); err != nil {
				files[i] = &File{Name: Shown(name), Problems: []*Problem{{Err: err}}}
			} else {
				files[i] = Parse(Shown(name), text)
			}
			files[i].InFolder = inFolder[name]
			return nil
		})
	}
	return files, readers.Wait()
}

// Shown is how messages name a file of the command line.
func Shown(name string) string {
	if name == "-" {
		return "standard input"
	}
	return filepath.ToSlash(name)
}

// expand lists the files of a path.
func expand(path string) ([]string, error) {
	if path == "-" {
		return []string{path}, nil
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) && strings.ContainsAny(path, "*?[") {
		found, err := filepath.Glob(path)
		if err != nil {
			return nil, fmt.Errorf("pattern %s: %w", path, err)
		}
		var all []string
		for _, name := range found {
			below, err := expand(name)
			if err != nil {
				return nil, err
			}
			all = append(all, below...)
		}
		if len(all) == 0 {
			return nil, fmt.Errorf("pattern %s matches no file", path)
		}
		return all, nil
	}
	if err != nil || !info.IsDir() {
		return []string{path}, err
	}
	var all []string
	err = filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil && entry == nil:
			return err
		case entry.IsDir() && name != path && strings.HasPrefix(entry.Name(), "."):
			return fs.SkipDir
		case entry.Type().IsRegular() &&
			slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(name))):
			all = append(all, name)
		}
		return nil
	})
	return all, err
}

// ReadText reads one file, or stdin for -, of at most 32 MiB.
func ReadText(name string, stdin io.Reader) ([]byte, error) {
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }()
		stdin = f
	}
	text, err := io.ReadAll(io.LimitReader(stdin, maxFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", Shown(name), err)
	case len(text) > maxFile:
		return nil, fmt.Errorf("has more than %d MiB: split it", maxFile>>20)
	}
	return text, nil
}
