package conf

import (
	"encoding"
	"fmt"
	"reflect"
	"strconv"
)

// Defaults gives every key of *config that is not in the file, or wrong in form there, the value of
// its tag "default".
func (v *Check) Defaults(config any) { v.fill(reflect.ValueOf(config).Elem(), "") }

// fill fills a table at a path.
func (v *Check) fill(t reflect.Value, path string) {
	for i := range t.NumField() {
		f, tag := t.Field(i), t.Type().Field(i).Tag
		key := tag.Get("toml")
		if key == "" || key == "-" {
			continue
		}
		at := Join(path, key)
		switch {
		case f.Kind() == reflect.Struct:
			v.fill(f, at)
		case f.Kind() == reflect.Slice && f.Type().Elem().Kind() == reflect.Struct:
			for j := range f.Len() {
				v.fill(f.Index(j), fmt.Sprintf("%s[%d]", at, j))
			}
		case !v.Given(at) || v.spoilt[at]:
			if def, ok := tag.Lookup("default"); ok {
				set(f, def)
			}
		}
	}
}

// set panics on a tag that cannot be: TestReference looks at all of them.
func set(f reflect.Value, text string) {
	var err error
	if u, ok := f.Addr().Interface().(encoding.TextUnmarshaler); ok {
		err = u.UnmarshalText([]byte(text))
	} else {
		switch f.Kind() {
		case reflect.String:
			f.SetString(text)
		case reflect.Bool:
			var b bool
			b, err = strconv.ParseBool(text)
			f.SetBool(b)
		case reflect.Int:
			var n int64
			n, err = strconv.ParseInt(text, 10, 64)
			f.SetInt(n)
		case reflect.Uint16, reflect.Uint32:
			var n uint64
			n, err = strconv.ParseUint(text, 10, 32)
			f.SetUint(n)
		default:
			err = fmt.Errorf("no default for a %v", f.Type())
		}
	}
	if err != nil {
		panic(fmt.Sprintf("conf: default %q: %v", text, err))
	}
}
