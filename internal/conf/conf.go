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
	"fmt"
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

// fileMax bounds a configuration: whatever is longer is none.
const fileMax = 1 << 20

// Read reads a file that may be a configuration.
func Read(file string) ([]byte, error) {
	st, err := os.Stat(file)
	switch {
	case err != nil:
		return nil, err
	case !st.Mode().IsRegular() || st.Size() > fileMax:
		return nil, fmt.Errorf("%s: want a regular file of %d octets at most", file, fileMax)
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

// distance is how many letters are to be put in, taken out or changed to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := corner
			if a[i] != b[j] {
				change++
			}
			corner = row[j+1]
			row[j+1] = min(change, corner+1, row[j]+1)
		}
	}
	return row[len(b)]
}
