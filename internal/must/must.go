// Package must ends a test at an error.
package must

// Do ends the test, or the run of a property, if err is not nil.
func Do(t interface {
	Helper()
	Fatal(args ...any)
}, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
