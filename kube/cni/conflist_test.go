package cni

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/must"
)

// kinds are the types of a list's plugins, in order.
func kinds(t testing.TB, text []byte) (out []string) {
	t.Helper()
	var list struct{ Plugins []struct{ Type string } }
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	for _, p := range list.Plugins {
		out = append(out, p.Type)
	}
	return out
}

// isSame reports whether two texts are the same JSON.
func isSame(t testing.TB, a, b []byte) bool {
	t.Helper()
	var values [2]any
	for i, text := range [][]byte{a, b} {
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		if err := d.Decode(&values[i]); err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
	}
	return reflect.DeepEqual(values[0], values[1])
}

// roundTrip inserts and removes the plugin.
func roundTrip(t testing.TB, text []byte) {
	t.Helper()
	with, err := insert(text)
	must.Do(t, err)
	if got, want := kinds(t, with), append(kinds(t, text), Name); !reflect.DeepEqual(got, want) {
		t.Fatalf("plugins %q, want %q", got, want)
	}
	if again, err := insert(with); err != nil || string(again) != string(with) {
		t.Errorf("a second time: %v\n%s", err, again)
	}
	if back, err := remove(with); err != nil || !isSame(t, back, text) {
		t.Errorf("removed again: %v, got\n%s\nwant\n%s", err, back, text)
	}
}

// The configurations that the networks' own installers write.
func TestKnownNetworks(t *testing.T) {
	files, err := filepath.Glob("testdata/*.conflist")
	if err != nil || len(files) < 6 {
		t.Fatalf("%q, %v", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			roundTrip(t, []byte(content(t, file)))
		})
	}
}

func TestInsertReplacesAnEarlierEntry(t *testing.T) {
	for _, text := range []string{
		`{"plugins": [{"type":"a"}, {"type":"lastcall-cni"}]}`,
		`{"plugins": [{"type":"a"}, {"type":"lastcall-cni","old":1}, {"type":"lastcall-cni"}]}`,
		`{"plugins": [{"type":"lastcall-cni","old":1}, {"type":"a"}]}`,
	} {
		with, err := insert([]byte(text))
		must.Do(t, err)
		if want := `{"plugins": [{"type":"a"},` + entry + `]}`; !isSame(t, with, []byte(want)) {
			t.Errorf("%s became %s, want %s", text, with, want)
		}
	}
	// One that another program has chained after it stays there.
	text := `{"plugins": [{"type":"a"}, ` + entry + `, {"type":"b"}]}`
	if with, err := insert([]byte(text)); err != nil || string(with) != text {
		t.Errorf("%s became %s, %v", text, with, err)
	}
}

func TestNoList(t *testing.T) {
	for _, text := range []string{
		"", "{", "[]", "null", `"plugins"`, "{}", `{"type":"bridge"}`, `{"plugins":[]}`, `{"plugins":{}}`, `{"plugins":[1]}`,
		`{"plugins":[{"type":"a"}]`, `{"plugins":[{"type":"a"}]} x`, `{"plugins":[{"type":"a"},]}`,
		`{"plugins":[{"type":"a"} {"type":"b"}]}`,
	} {
		if with, err := insert([]byte(text)); err == nil {
			t.Errorf("%q became %s", text, with)
		}
	}
	if without, err := remove([]byte(`{"plugins":[` + entry + `]}`)); err == nil {
		t.Errorf("the last plugin was removed: %s", without)
	}
}

// A result is always a list that has the plugin once.
func FuzzInsert(f *testing.F) {
	f.Add([]byte(`{"name":"a","plugins":[{"type":"b"}]}`))
	f.Add([]byte(`{"plugins":[{"type":"lastcall-cni"},{"type":"b"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		with, err := insert(text)
		if err != nil {
			return
		}
		without, err := remove(text)
		if err != nil || len(kinds(t, with)) < len(kinds(t, without))+1 || !bytes.Contains(with, []byte(Name)) {
			t.Fatalf("%v: %q became %q", err, text, with)
		}
		if again, err := insert(with); err != nil || !bytes.Equal(again, with) {
			t.Fatalf("%v: %q became %q", err, with, again)
		}
	})
}
