package conf

import (
	"encoding"
	"fmt"
	"reflect"
	"strconv"
)

// Fill gives every key of the struct v, a table at path, that is not in the file the value of its
// tag "default".
func Fill(v reflect.Value, path string, ix *Index) {
	for i := range v.NumField() {
		f, tag := v.Field(i), v.Type().Field(i).Tag
		key := tag.Get("toml")
		if key == "" || key == "-" {
			continue
		}
		at := Join(path, key)
		switch {
		case f.Kind() == reflect.Struct:
			Fill(f, at, ix)
		case f.Kind() == reflect.Slice && f.Type().Elem().Kind() == reflect.Struct:
			for j := range f.Len() {
				Fill(f.Index(j), fmt.Sprintf("%s[%d]", at, j), ix)
			}
		case !ix.Given(at):
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
