package conf

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2/unstable"
)

// Check collects the mistakes of one file.
type Check struct {
	File  string
	Index *Index
	Errs  Errors

	spoilt map[string]bool // keys whose values are wrong in form
}

var subscripts = regexp.MustCompile(`\[\d+\]`)

// Wrong enters a mistake at a path, unless it follows from another.
func (v *Check) Wrong(path, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if v.follows(path, text) {
		return
	}
	at := v.Index.find(path)
	v.Errs = append(v.Errs, &Error{v.File, at.line, at.column, subscripts.ReplaceAllString(path, ""),
		text})
}

// follows says whether a mistake is of a key whose value is wrong in form, and so not the file's,
// or its text names such a key of its table.
func (v *Check) follows(path, text string) bool {
	for spoilt := range v.spoilt {
		if path == spoilt || strings.HasPrefix(path, spoilt+".") ||
			strings.HasPrefix(path, spoilt+"[") {
			return true
		}
		dot := strings.LastIndexByte(spoilt, '.') + 1
		if strings.HasPrefix(path, spoilt[:dot]) &&
			slices.Contains(words.FindAllString(text, -1), spoilt[dot:]) {
			return true
		}
	}
	return false
}

var words = regexp.MustCompile(`[a-z0-9_]+`)

// Given says whether the file has the key or table at path.
func (v *Check) Given(path string) bool { return v.Index.Given(path) }

// Line is where something stands, for the errors of others.
func (v *Check) Line(path string) int { return v.Index.find(path).line }

// Err is all mistakes in the order of the file, or nil.
func (v *Check) Err() error {
	if len(v.Errs) == 0 {
		return nil
	}
	slices.SortStableFunc(v.Errs, func(a, b *Error) int {
		return 4096*(a.Line-b.Line) + a.Column - b.Column
	})
	return v.Errs
}

// Units refuses numbers where a unit is missing, and sizes below 0. Judge the file afterwards: what
// else is wrong with these values is not meant.
func (v *Check) Units(t reflect.Value, path string) {
	for i := range t.NumField() {
		f, key := t.Field(i), t.Type().Field(i).Tag.Get("toml")
		if key == "" || key == "-" {
			continue
		}
		at := Join(path, key)
		switch {
		case f.Kind() == reflect.Struct:
			v.Units(f, at)
		case f.Kind() == reflect.Slice && f.Type().Elem().Kind() == reflect.Struct:
			for j := range f.Len() {
				v.Units(f.Index(j), fmt.Sprintf("%s[%d]", at, j))
			}
		case f.Type() == reflect.TypeFor[Duration]() && v.Index.kinds[at] == unstable.Integer:
			v.Wrong(at, "%d: want a duration, as \"500ms\", \"10s\" or \"1m30s\"", f.Int())
			v.spoilt[at] = true
		case f.Type() == reflect.TypeFor[Size]() && f.Int() < 0:
			v.Wrong(at, "%d: want 0 or more octets", f.Int())
			v.spoilt[at] = true
		}
	}
}

func (v *Check) OneOf(path, value string, names ...string) {
	if !slices.Contains(names, value) {
		last := len(names) - 1
		v.Wrong(path, "%q: want %s or %s", value, strings.Join(names[:last], ", "), names[last])
	}
}

func (v *Check) Span(path string, d, least, most time.Duration) {
	if d < least || d > most {
		v.Wrong(path, "%v: want %v to %v", d, least, most)
	}
}

// Number refuses what is out of bounds.
func (v *Check) Number(path string, n, least, most int64) {
	if n < least || n > most {
		v.Wrong(path, "%d: want %d to %d", n, least, most)
	}
}

// Name refuses one that is not there, or that one of its kind has already.
func (v *Check) Name(kind string, i int, of func(int) string) {
	path, name := fmt.Sprintf("%s[%d].name", kind, i), of(i)
	if !nameForm.MatchString(name) {
		is := "missing"
		if v.Given(path) {
			is = strconv.Quote(name)
		}
		v.Wrong(path, "%s: want a name of a to z, 0 to 9, - and _, 32 of them at most", is)
		return
	}
	for j := range i {
		if of(j) == name {
			v.Wrong(path, "%q: the %s in line %d has this name; choose another", name, kind,
				v.Line(fmt.Sprintf("%s[%d].name", kind, j)))
			return
		}
	}
}

// Useless refuses keys of a table that are for others: the user that gave one believes that it does
// something. mine says whether a key is for this table by its of.
func (v *Check) Useless(path, what string, table any, mine func(of []string) bool) {
	t := reflect.TypeOf(table)
	for i := range t.NumField() {
		of, ok := t.Field(i).Tag.Lookup("of")
		at := Join(path, t.Field(i).Tag.Get("toml"))
		if ok && v.Given(at) && !mine(strings.Split(of, ",")) {
			v.Wrong(at, "of no use to %s: it is for %s; leave it out", what,
				strings.ReplaceAll(of, ",", ", "))
		}
	}
}

var nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,31}$`)
