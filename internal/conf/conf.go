// Package conf reads configuration files: TOML, strict. Unknown keys and invalid values are errors.
// Each error has file, line and column, the key, what is wrong and what is expected. All errors of
// a file are reported together.
//
//	conf.go       errors; a file's text, and what it says
//	index.go      line and column of each key
//	units.go      durations and sizes
//	defaults.go   values of keys that the file does not have
//	check.go      the checks that several tables need
//	places.go     addresses and paths that no machine has
//	differing.go  keys in which two configurations differ
package conf

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"

	"github.com/pelletier/go-toml/v2"
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

// Decode reads a text into a configuration, a struct with toml tags, whose defaults are not filled
// in, and says where its keys stand.
func Decode(file string, text []byte, into any) (*Index, error) {
	return decode(file, text, into, func(string) bool { return false })
}

// DecodeTables is Decode of the tables that into has. Others are not looked at.
func DecodeTables(file string, text []byte, into any) (*Index, error) {
	root := reflect.TypeOf(into).Elem()
	return decode(file, text, into, func(table string) bool {
		_, ok := FieldOf(root, table)
		return !ok
	})
}

// Peek reads what into has of a text, whatever else is wrong with it.
func Peek(text []byte, into any) error {
	return toml.Unmarshal(bytes.TrimPrefix(text, byteOrderMark), into)
}

// decode reads the tables of a text except those that are others'.
func decode(file string, text []byte, into any, others func(table string) bool) (*Index, error) {
	text = bytes.TrimPrefix(text, byteOrderMark)
	err := toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields().Decode(into)
	root := reflect.TypeOf(into).Elem()
	var unknown *toml.StrictMissingError
	var wrong *toml.DecodeError
	switch {
	case errors.As(err, &unknown):
		var all Errors
		for _, e := range unknown.Errors {
			if others(e.Key()[0]) {
				continue
			}
			line, column := e.Position()
			all = append(all, &Error{file, line, column, strings.Join(e.Key(), "."),
				unknownKey(root, e.Key())})
		}
		if len(all) > 0 {
			return nil, all
		}
	case errors.As(err, &wrong):
		line, column := wrong.Position()
		return nil, Errors{{file, line, column, strings.Join(wrong.Key(), "."), plainly(root, wrong)}}
	case err != nil:
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	ix, err := NewIndex(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return ix, nil
}

// unknownKey says what may have been meant.
func unknownKey(t reflect.Type, key []string) string {
	for _, part := range key[:len(key)-1] {
		f, ok := FieldOf(t, part)
		if !ok {
			return "unknown key"
		}
		if t = f.Type; t.Kind() == reflect.Slice {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct {
			return "unknown key"
		}
	}
	var names []string
	for i := range t.NumField() {
		if n := t.Field(i).Tag.Get("toml"); n != "-" && n != "" {
			names = append(names, n)
		}
	}
	if near := Nearest(strings.ReplaceAll(key[len(key)-1], "-", "_"), names); near != "" {
		return "unknown key; did you mean " + near + "?"
	}
	return "unknown key; there are " + strings.Join(names, ", ")
}

// FieldOf is the field of the struct type t that a key fills.
func FieldOf(t reflect.Type, key string) (reflect.StructField, bool) {
	if t.Kind() != reflect.Struct {
		return reflect.StructField{}, false
	}
	for i := range t.NumField() {
		if f := t.Field(i); f.Tag.Get("toml") == key {
			return f, true
		}
	}
	return reflect.StructField{}, false
}

// plainly says in words of the file what the decoder says in words of Go.
func plainly(t reflect.Type, e *toml.DecodeError) string {
	text := strings.TrimPrefix(e.Error(), "toml: ")
	tables := false // the key is of an array of tables
	for _, part := range e.Key() {
		f, ok := FieldOf(t, part)
		if !ok {
			return text
		}
		t = f.Type
		if tables = t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct; tables {
			t = t.Elem()
		}
	}
	if len(e.Key()) == 0 || !strings.Contains(text, "decode") && !strings.Contains(text, "stored") &&
		!strings.Contains(text, "negative") && !strings.Contains(text, "mismatch") {
		return text
	}
	if tables {
		return DoubleBrackets(strings.Join(e.Key(), "."))
	}
	return "want " + kindName(t)
}

// DoubleBrackets says how an array of tables is written.
func DoubleBrackets(name string) string {
	return fmt.Sprintf("want double brackets, [[%s]]: there may be several", name)
}

// kindName is what may stand at a key, in words of TOML.
func kindName(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[Duration]():
		return `a duration, as "500ms"`
	case t == reflect.TypeFor[Size]():
		return `a size, as 4096 or "64KiB"`
	}
	switch t.Kind() {
	case reflect.Pointer:
		return kindName(t.Elem())
	case reflect.String:
		return `a text, as "name"`
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Uint16, reflect.Uint32:
		return fmt.Sprintf("a whole number from 0 to %d", uint64(1)<<t.Bits()-1)
	case reflect.Slice:
		return `an array, as ["one", "two"]`
	case reflect.Map:
		return "a table of texts"
	case reflect.Struct:
		return "a table, begun with its name in brackets"
	}
	return t.String()
}

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
