package cni

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Node is where a node keeps its network plugins and their configuration.
type Node struct {
	Programs string // the folder with the plugins
	Lists    string // the folder with the configurations
	List     string // the name of the configuration to change; empty: the one that the runtime uses
}

// temporary is the name under which a file is written before it gets its own. Runtimes ignore files with this ending.
const temporary = "." + Name + ".new"

// maxList is the most that is read of a configuration, in bytes.
const maxList = 1 << 20

// errNoNetwork means that the node's network is not set up yet.
var errNoNetwork = errors.New("there is no network configuration yet")

// active is the path of the configuration list that the runtime uses: the first in the order of names (libcni).
func (n Node) active() (string, error) {
	name := n.List
	if name == "" {
		names, err := n.configurations(".conf", ".conflist", ".json")
		if err != nil {
			return "", err
		}
		if len(names) == 0 {
			return "", fmt.Errorf("%s: %w", n.Lists, errNoNetwork)
		}
		name = names[0]
	}
	path := filepath.Join(n.Lists, name)
	if filepath.Ext(name) != ".conflist" {
		return "", fmt.Errorf("%s configures a single plugin, to which none can be chained: "+
			"name another file (--conf-file), or make it a list (.conflist)", path)
	}
	return path, nil
}

// configurations are the names of the files with one of the endings, sorted.
func (n Node) configurations(endings ...string) ([]string, error) {
	all, err := os.ReadDir(n.Lists)
	if err != nil {
		return nil, fmt.Errorf("look for the network configuration: %w", err)
	}
	var names []string
	for _, entry := range all {
		if slices.Contains(endings, filepath.Ext(entry.Name())) && !entry.IsDir() {
			names = append(names, entry.Name())
		}
	}
	return names, nil
}

// Install puts the program and then the plugin's entry in place. It changes only files that differ, and reports whether
// that was anything.
func (n Node) Install(program []byte) (isChanged bool, err error) {
	target := filepath.Join(n.Programs, Name)
	if old, err := os.ReadFile(target); err != nil || !bytes.Equal(old, program) {
		if err := replace(target, program, 0o755); err != nil {
			return false, fmt.Errorf("install the plugin: %w", err)
		}
		isChanged = true
	}
	list, err := n.active()
	if err != nil {
		return isChanged, err
	}
	isEdited, err := n.edit(list, insert)
	if err != nil {
		return isChanged, err
	}
	// It may have been the active one earlier.
	err = n.removeExcept(filepath.Base(list))
	return isChanged || isEdited, err
}

// IsInstalled reports an error unless Install would change nothing.
func (n Node) IsInstalled() error {
	if _, err := os.Stat(filepath.Join(n.Programs, Name)); err != nil {
		return err
	}
	list, err := n.active()
	if err != nil {
		return err
	}
	_, err = n.edit(list, func(text []byte) ([]byte, error) {
		with, err := insert(text)
		if err == nil && !bytes.Equal(with, text) {
			err = errors.New("the plugin " + Name + " is not in its chain")
		}
		return text, err
	})
	return err
}

// Remove takes the entry out of all lists. The program stays.
func (n Node) Remove() error { return n.removeExcept("") }

func (n Node) removeExcept(keep string) error {
	names, err := n.configurations(".conflist")
	var errs []error
	kept, _ := filepath.EvalSymlinks(filepath.Join(n.Lists, keep))
	for _, name := range names {
		path := filepath.Join(n.Lists, name)
		if real, err := filepath.EvalSymlinks(path); keep != "" && (name == keep || err == nil && real == kept) {
			continue // or another name of the same file
		}
		if text, err := read(path); err == nil && !bytes.Contains(text, []byte(Name)) {
			continue // even if it is no list
		}
		_, err := n.edit(path, remove)
		errs = append(errs, err)
	}
	return errors.Join(err, errors.Join(errs...))
}

// target is the file behind the name of a list. The runtime follows a symbolic link to what the network's own program
// writes: the link stays, and its target is changed. A target outside the folder is refused, because the installer sees
// no other folder of the node: the link's path names another file, or none, in the installer's container.
func (n Node) target(path string) (string, error) {
	folder, err := filepath.EvalSymlinks(n.Lists)
	if err != nil {
		return "", err
	}
	real, err := filepath.EvalSymlinks(path)
	if err == nil && strings.HasPrefix(real, folder+string(filepath.Separator)) {
		return real, nil
	}
	if to, linkErr := os.Readlink(path); linkErr == nil {
		return "", fmt.Errorf("%s is a symbolic link to %s, which is not in %s: "+
			"move that file into the folder, or name another one (--conf-file)", path, to, n.Lists)
	}
	return "", err
}

// edit replaces a list by the result of change.
func (n Node) edit(path string, change func([]byte) ([]byte, error)) (isChanged bool, err error) {
	text, err := read(path)
	if err != nil {
		return false, err
	}
	changed, err := change(text)
	if err != nil {
		return false, fmt.Errorf("%s: %w", path, err)
	}
	if bytes.Equal(changed, text) {
		return false, nil
	}
	target, err := n.target(path)
	if err != nil {
		return false, err
	}
	info, err := os.Stat(target)
	if err != nil {
		return false, err
	}
	if err := replace(target, changed, info.Mode().Perm()); err != nil {
		return true, err
	}
	return true, relink(path)
}

// relink replaces a symbolic link by the same one: the runtime watches the link's folder, not that of its target.
func relink(path string) error {
	to, err := os.Readlink(path)
	if err != nil {
		return nil // a file
	}
	link := filepath.Join(filepath.Dir(path), temporary)
	_ = os.Remove(link)
	if err := os.Symlink(to, link); err != nil {
		return err
	}
	return os.Rename(link, path)
}

func read(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxList {
		return nil, fmt.Errorf("%s has %d bytes; the limit is %d", path, info.Size(), maxList)
	}
	return os.ReadFile(path)
}

// replace writes a file under a temporary name in the same folder, and renames it: others see the old or the new one.
func replace(path string, content []byte, mode fs.FileMode) (err error) {
	to := filepath.Join(filepath.Dir(path), temporary)
	_ = os.Remove(to) // of a process that was killed
	file, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	err = errors.Join(err, file.Chmod(mode), file.Sync(), file.Close())
	if err == nil {
		err = os.Rename(to, path)
	}
	if err != nil {
		_ = os.Remove(to)
	}
	return err
}

// entry is the plugin in the list of plugins.
const entry = `{"type":"` + Name + `","capabilities":{"io.kubernetes.cri.pod-annotations":true}}`

// insert returns a network configuration list with the plugin at the end of its chain. A list that has it already is
// returned unchanged.
func insert(text []byte) ([]byte, error) { return chain(text, true) }

// remove returns the list without the plugin.
func remove(text []byte) ([]byte, error) { return chain(text, false) }

// chain reads only the list's plugins; all other fields stay.
func chain(text []byte, isIn bool) ([]byte, error) {
	var fields map[string]json.RawMessage
	var all, others []json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return text, err
	}
	if err := json.Unmarshal(fields["plugins"], &all); err != nil {
		return text, fmt.Errorf("it has no list of plugins, to which %s could be added: %w", Name, err)
	}
	hasEntry := false // of this version
	for _, one := range all {
		var plugin struct{ Type string }
		var compact bytes.Buffer
		if err := errors.Join(json.Unmarshal(one, &plugin), json.Compact(&compact, one)); err != nil {
			return text, err
		}
		if plugin.Type != Name {
			others = append(others, one)
		} else if compact.String() == entry {
			hasEntry = true
		}
	}
	switch {
	case len(others) == 0:
		return text, errors.New("it has no plugin but " + Name)
	case isIn && hasEntry, !isIn && len(others) == len(all):
		return text, nil
	case isIn:
		others = append(others, json.RawMessage(entry))
	}
	plugins, err := json.Marshal(others)
	if err != nil {
		return text, err
	}
	fields["plugins"] = plugins
	return json.MarshalIndent(fields, "", "  ")
}
