// Package conf reads configuration files: TOML, strict. Unknown keys and invalid values are errors.
// Each error has file, line and column, the key, what is wrong and what is expected. All errors of
// a file are reported together.
//
//	conf.go       errors, and a file's text
//	decode.go     the file's keys and values, past each mistake of form
//	index.go      line and column of each key
//	units.go      durations and sizes
//	defaults.go   values of keys that the file does not have
//	check.go      the checks that several tables need
//	places.go     addresses and paths that no machine has
//	differing.go  keys in which two configurations differ
package conf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// Error is one mistake in a file.
type Error struct {
	File         string
	Line, Column int
	Key          string // as port.mtu; empty: the file is no TOML there
	Text         string // what is wrong, and what would be right
}

func (e *Error) Error() string {
	key := e.Key
	if key != "" {
		key += ": "
	}
	return fmt.Sprintf("%s:%d:%d: %s%s", e.File, e.Line, e.Column, key, e.Text)
}

// Errors are all mistakes that were found, in the order of the file.
type Errors []*Error

func (es Errors) Error() string {
	lines := make([]string, len(es))
	for i, e := range es {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap are the errors, as errors.Join has them.
func (es Errors) Unwrap() []error {
	all := make([]error, len(es))
	for i, e := range es {
		all[i] = e
	}
	return all
}

// fileMax bounds a configuration: whatever is longer is none.
const fileMax = 1 << 20

// ReadError: there is no configuration to read.
type ReadError struct {
	File string
	Err  error
}

func (e *ReadError) Error() string {
	if e.File == "" {
		return `"": ` + e.Err.Error()
	}
	return e.File + ": " + e.Err.Error()
}

func (e *ReadError) Unwrap() error { return e.Err }

// Read reads a file that may be a configuration. Its error is a *ReadError.
func Read(file string) ([]byte, error) {
	text, err := read(file)
	if err != nil {
		var of *fs.PathError
		if errors.As(err, &of) {
			err = of.Err // the path is File
		}
		return nil, &ReadError{file, err}
	}
	return text, nil
}

func read(file string) ([]byte, error) {
	if file == "" {
		return nil, errors.New("the name of the file is empty")
	}
	st, err := os.Stat(file)
	switch {
	case err != nil:
		return nil, err
	case !st.Mode().IsRegular() || st.Size() > fileMax:
		return nil, fmt.Errorf("want a regular file of %d octets at most", fileMax)
	}
	return os.ReadFile(file)
}

// byteOrderMark is what some editors put there.
var byteOrderMark = []byte("\xef\xbb\xbf")

// Nearest is the one of names that is the least far from name, which is none of them: two letters
// at most, and fewer than all but one of its own; empty: none is near. A single letter is near to
// all.
func Nearest(name string, names []string) (near string) {
	least := min(3, len(name)-1)
	for _, n := range names {
		if d := distance(name, n); d < least {
			least, near = d, n
		}
	}
	return near
}

// distance is how many letters are to be put in, taken out or changed, or neighbours to change
// places, to make b of a.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before, last, row = last, row, before
		row[0] = i + 1
		for j := range len(b) {
			change := last[j]
			if a[i] != b[j] {
				change++
			}
			row[j+1] = min(change, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
	}
	return row[len(b)]
}
