package conf

import "reflect"

// Differing are the keys of a table, which stands at path, in which two configurations differ.
func Differing[T any](path string, a, b T) []string {
	return differing(path, reflect.ValueOf(a), reflect.ValueOf(b))
}

func differing(path string, a, b reflect.Value) (keys []string) {
	for i := range a.NumField() {
		key := a.Type().Field(i).Tag.Get("toml")
		switch {
		case key == "-":
		case a.Field(i).Kind() == reflect.Struct:
			keys = append(keys, differing(path+"."+key, a.Field(i), b.Field(i))...)
		case !reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()):
			keys = append(keys, path+"."+key)
		}
	}
	return keys
}
