package config

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/rnicd/rnicd/internal/port"
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

// Load reads a file and says whether it can be started, with the drivers that the program has. An
// error of its content is Errors.
func Load(file string, drivers port.Drivers) (*Config, error) {
	text, err := read(file)
	if err != nil {
		return nil, err
	}
	if IsSwitch(text) {
		return nil, fmt.Errorf("%s: this is the configuration of a switch: rnicd switch --config FILE",
			file)
	}
	return Parse(file, text, drivers)
}

// Parse is Load of a text; file is its name in errors.
func Parse(file string, text []byte, drivers port.Drivers) (*Config, error) {
	c := &Config{File: file}
	err := removed(file, bytes.TrimPrefix(text, byteOrderMark))
	if err != nil {
		return nil, err
	}
	if c.index, err = decode(file, text, c); err != nil {
		return nil, err
	}
	v := &validator{c: c, drivers: drivers}
	setDefaults(c)
	v.validate()
	if len(v.errs) > 0 {
		v.sort()
		return nil, v.errs
	}
	return c, nil
}

// removedTypes are types of service that there were, each with what serves its clients now.
var removedTypes = map[string]string{
	"perftest": "rnicd run -- ib_write_bw -R, or another of perftest's programs",
	"rstream":  "rnicd run -- rstream, or riostream",
}

// removed looks for services of such types. Their keys are gone, too: what strict decoding would
// say of these is not the point.
func removed(file string, text []byte) error {
	var has struct {
		Services []struct {
			Type string `toml:"type"`
		} `toml:"service"`
	}
	if toml.Unmarshal(text, &has) != nil {
		return nil // strict decoding says what is wrong
	}
	ix, err := newIndex(text)
	if err != nil {
		return nil // likewise
	}
	v := &validator{c: &Config{File: file, index: ix}}
	for i, s := range has.Services {
		if by, ok := removedTypes[s.Type]; ok {
			v.wrong(fmt.Sprintf("service[%d].type", i), "%q is no type any more; run the program itself: %s",
				s.Type, by)
		}
	}
	if len(v.errs) > 0 {
		return v.errs
	}
	return nil
}

// sort puts mistakes in the order of the file.
func (v *validator) sort() {
	slices.SortStableFunc(v.errs, func(a, b *Error) int {
		return 4096*(a.Line-b.Line) + a.Column - b.Column
	})
}

// byteOrderMark is what some editors put there.
var byteOrderMark = []byte("\xef\xbb\xbf")

// decode reads a text into a configuration, whose defaults are not filled in, and says where its
// keys stand.
func decode(file string, text []byte, into any) (*index, error) {
	text = bytes.TrimPrefix(text, byteOrderMark)
	dec := toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields()
	err := dec.Decode(into)
	root := reflect.TypeOf(into).Elem()
	var unknown *toml.StrictMissingError
	var wrong *toml.DecodeError
	switch {
	case errors.As(err, &unknown):
		var all Errors
		for _, e := range unknown.Errors {
			line, column := e.Position()
			all = append(all, &Error{file, line, column, strings.Join(e.Key(), "."),
				unknownKey(root, e.Key())})
		}
		return nil, all
	case errors.As(err, &wrong):
		line, column := wrong.Position()
		return nil, Errors{{file, line, column, strings.Join(wrong.Key(), "."), plainly(root, wrong)}}
	case err != nil:
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	ix, err := newIndex(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return ix, nil
}

// unknownKey says what may have been meant.
func unknownKey(t reflect.Type, key []string) string {
	for _, part := range key[:len(key)-1] {
		f, ok := fieldOf(t, part)
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

func fieldOf(t reflect.Type, key string) (reflect.StructField, bool) {
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
	for _, part := range e.Key() {
		f, ok := fieldOf(t, part)
		if !ok {
			return text
		}
		if t = f.Type; t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct {
			t = t.Elem()
		}
	}
	if len(e.Key()) == 0 || !strings.Contains(text, "decode") && !strings.Contains(text, "stored") &&
		!strings.Contains(text, "negative") && !strings.Contains(text, "mismatch") {
		return text
	}
	return "want " + kindName(t)
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
		if t.Elem().Kind() == reflect.Struct {
			return "an array of tables, each begun with its name in double brackets"
		}
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
