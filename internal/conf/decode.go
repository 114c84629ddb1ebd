package conf

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// mistakesMax bounds the values of a wrong type that are reported: the text is decoded once for
// each.
const mistakesMax = 64

// Decode reads a text into a configuration, a struct with toml tags, whose defaults are not filled
// in. The Check says where its keys stand, and has the mistakes so far: unknown keys, and values of
// a wrong type, which are left out. An error is all mistakes where to judge the rest would report
// what is none.
func Decode(file string, text []byte, into any) (*Check, error) {
	return decode(file, text, into, func(string) bool { return false })
}

// DecodeTables is Decode of the tables that into has. Others are not looked at.
func DecodeTables(file string, text []byte, into any) (*Check, error) {
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
func decode(file string, text []byte, into any, others func(table string) bool) (*Check, error) {
	text = bytes.TrimPrefix(text, byteOrderMark)
	d := &decoder{Check: &Check{File: file, spoilt: map[string]bool{}}, text: text, others: others,
		root: reflect.TypeOf(into).Elem()}
	err := error(nil)
	if d.Index, err = NewIndex(text); err != nil {
		d.cut(err)
	}
	if err := d.decode(reflect.ValueOf(into).Elem()); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if d.last {
		return nil, d.Err()
	}
	return d.Check, nil
}

// decoder decodes a text again and again, each time without what was found wrong before.
type decoder struct {
	*Check
	text   []byte // without the mistakes: blanks in their places
	root   reflect.Type
	others func(table string) bool
	last   bool // the rest of the file is not to be judged
}

// cut enters what is no TOML, and leaves the text before it.
func (d *decoder) cut(err error) {
	d.last = true
	at, why := len(d.text), err.Error()
	var wrong *unstable.ParserError
	if errors.As(err, &wrong) {
		why = wrong.Message
		// Where a subslice begins, as package toml finds it.
		at = min(max(0, cap(d.text)-cap(wrong.Highlight)), len(d.text))
	}
	where := d.Index.placeAt(at)
	d.Errs = append(d.Errs, &Error{d.File, where.line, where.column, "", why})
	// An array of several lines may have begun before; the last whole expression is then no loss.
	end := d.Index.lines[where.line-1]
	if _, err := NewIndex(d.text[:end]); err != nil {
		end = 0
		if all := d.Index.expressions; len(all) > 0 {
			end = all[len(all)-1].begin
		}
	}
	d.text = d.text[:end]
}

func (d *decoder) decode(into reflect.Value) error {
	for range mistakesMax {
		fresh := reflect.New(d.root)
		fresh.Elem().Set(into)
		err := toml.NewDecoder(bytes.NewReader(d.text)).DisallowUnknownFields().Decode(
			fresh.Interface())
		var unknown *toml.StrictMissingError
		var wrong *toml.DecodeError
		switch {
		case errors.As(err, &unknown):
			for i := range unknown.Errors {
				d.unknown(&unknown.Errors[i])
			}
		case errors.As(err, &wrong):
			if d.wrong(wrong) {
				continue
			}
			d.last = true
			return nil
		case err != nil:
			return err
		}
		into.Set(fresh.Elem())
		return nil
	}
	d.last = true
	return nil
}

// unknown enters an unknown key. The key that may be meant is not missing.
func (d *decoder) unknown(e *toml.DecodeError) {
	key := e.Key()
	if d.others(key[0]) {
		return
	}
	line, column := e.Position()
	text, near := unknownKey(d.root, key)
	d.Errs = append(d.Errs, &Error{d.File, line, column, strings.Join(key, "."), text})
	if at := d.Index.expressionAt(line, column); at >= 0 && near != "" {
		path := d.Index.expressions[at].path
		if table, ok := strings.CutSuffix(path, key[len(key)-1]); ok {
			path = table + near
		}
		d.spoilt[path] = true
		d.last = d.last || near == "name"
	}
}

// wrong enters a value of a wrong type and blanks it, and says whether the text may be decoded
// without. Of a table all goes, and other tables are not judged without it; nor without a name.
func (d *decoder) wrong(e *toml.DecodeError) bool {
	line, column := e.Position()
	d.Errs = append(d.Errs, &Error{d.File, line, column, strings.Join(e.Key(), "."),
		plainly(d.root, e)})
	all := d.Index.expressions
	at := d.Index.expressionAt(line, column)
	if at < 0 {
		return false
	}
	x, next := all[at], at+1
	for x.table && next < len(all) && !all[next].table {
		next++
	}
	end := len(d.text)
	if next < len(all) {
		end = min(end, all[next].begin)
	}
	d.last = d.last || x.table || strings.HasSuffix(x.path, ".name") || !strings.Contains(x.path, ".")
	d.spoilt[x.path] = true
	blank := bytes.Clone(d.text)
	changed := false
	for i := x.begin; i < end; i++ {
		if blank[i] != '\n' && blank[i] != ' ' {
			blank[i], changed = ' ', true
		}
	}
	d.text = blank
	return changed
}

// unknownKey says what may have been meant; near is the key, or empty.
func unknownKey(t reflect.Type, key []string) (text, near string) {
	for _, part := range key[:len(key)-1] {
		f, ok := FieldOf(t, part)
		if !ok {
			return "unknown key", ""
		}
		if t = f.Type; t.Kind() == reflect.Slice {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct {
			return "unknown key", ""
		}
	}
	var names []string
	for i := range t.NumField() {
		if n := t.Field(i).Tag.Get("toml"); n != "-" && n != "" {
			names = append(names, n)
		}
	}
	near = Nearest(strings.ReplaceAll(key[len(key)-1], "-", "_"), names)
	if near != "" {
		return "unknown key; did you mean " + near + "?", near
	}
	return "unknown key; there are " + strings.Join(names, ", "), ""
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
