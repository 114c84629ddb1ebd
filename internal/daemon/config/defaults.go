package config

import (
	"encoding"
	"fmt"
	"reflect"
	"strconv"
)

// setDefaults gives every key that is not in the file the value of its tag; those of a port's TCP
// the values of [tcp].
func setDefaults(c *Config) {
	fill(reflect.ValueOf(c).Elem(), "", c.index)
	for i := range c.Ports {
		own, all := reflect.ValueOf(&c.Ports[i].TCP).Elem(), reflect.ValueOf(c.TCP)
		for f := range own.NumField() {
			if !c.index.given(fmt.Sprintf("port[%d].tcp.%s", i, own.Type().Field(f).Tag.Get("toml"))) {
				own.Field(f).Set(all.Field(f))
			}
		}
	}
}

func fill(v reflect.Value, path string, ix *index) {
	for i := range v.NumField() {
		f, tag := v.Field(i), v.Type().Field(i).Tag
		key := tag.Get("toml")
		if key == "" || key == "-" {
			continue
		}
		at := join(path, key)
		switch {
		case f.Kind() == reflect.Struct:
			fill(f, at, ix)
		case f.Kind() == reflect.Slice && f.Type().Elem().Kind() == reflect.Struct:
			for j := range f.Len() {
				fill(f.Index(j), fmt.Sprintf("%s[%d]", at, j), ix)
			}
		case !ix.given(at):
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
		panic(fmt.Sprintf("config: default %q: %v", text, err))
	}
}
