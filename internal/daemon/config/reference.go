package config

import (
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/rnicd/rnicd/internal/conf"
)

// made says how a reference came about. %s is the command that reads such a file.
const made = "`rnicd %s --config FILE` reads it, `rnicd check FILE` says what is wrong with it; " +
	"made of the\ntypes in `internal/daemon/config` by `go test ./internal/daemon/config -update`. "

// WriteReference writes docs/reference/configuration.md.
func WriteReference(w io.Writer) {
	fmt.Fprintf(w, "# Configuration\n\n"+made+`[The
guide](../guides/daemon.md) has examples.

TOML, strict: a key that is not here is an error. Durations are texts as "500ms" or "1m30s"; sizes
are numbers of octets, or texts as "64KiB", "1.5GiB"; texts are an array of them. In parentheses
stands what a key is for.

`, "serve")
	writeTables(w, reflect.TypeFor[Config]())
}

// WriteSwitchReference writes docs/reference/configuration-switch.md.
func WriteSwitchReference(w io.Writer) {
	fmt.Fprintf(w, "# Configuration of a switch\n\n"+made+`[The
guide](../guides/switch.md) has an example. Form and units are those of [the
daemon's](configuration.md).

`, "switch")
	writeTables(w, reflect.TypeFor[Switch]())
}

// common are the tables that a switch has from the daemon.
var common = []reflect.Type{reflect.TypeFor[Log](), reflect.TypeFor[Control](),
	reflect.TypeFor[Metrics]()}

func writeTables(w io.Writer, t reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		key := f.Tag.Get("toml")
		if key == "" || key == "-" {
			continue
		}
		elem, title := f.Type, "["+key+"]"
		if elem.Kind() == reflect.Slice {
			elem, title = elem.Elem(), "[["+key+"]]"
		}
		fmt.Fprintf(w, "## %s\n\n%s\n\n", title, f.Tag.Get("doc"))
		if t != reflect.TypeFor[Config]() && slices.Contains(common, elem) {
			fmt.Fprintf(w, "Keys and values are those of [the daemon's](configuration.md#%s).\n\n", key)
			continue
		}
		if elem == reflect.TypeFor[Service]() {
			writeTypes(w)
		}
		writeKeys(w, elem)
	}
}

func writeTypes(w io.Writer) {
	fmt.Fprint(w, "| type | TCP port | what, and its clients |\n|---|---|---|\n")
	for _, t := range Types {
		fmt.Fprintf(w, "| %s | %d | %s |\n", t.Name, t.Listen, t.Doc)
	}
	fmt.Fprint(w, "\nOf several services on one port each needs a `listen` of its own.\n\n")
}

// writeKeys writes a row for each key: its name, with what it is for in parentheses unless that
// is all, its value, the default and the text.
func writeKeys(w io.Writer, t reflect.Type) {
	fmt.Fprint(w, "| key | value | default | |\n|---|---|---|---|\n")
	for i := range t.NumField() {
		f := t.Field(i)
		key := f.Tag.Get("toml")
		if key == "-" {
			continue
		}
		want := f.Tag.Get("want")
		if want == "" {
			want = valueName(f.Type)
		}
		name := "`" + key + "`"
		if of := f.Tag.Get("of"); of != "" {
			name += " (" + strings.ReplaceAll(of, ",", ", ") + ")"
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s |\n", name, want, f.Tag.Get("default"), f.Tag.Get("doc"))
	}
	fmt.Fprintln(w)
}

func valueName(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[conf.Duration]():
		return "duration"
	case t == reflect.TypeFor[conf.Size]():
		return "size"
	}
	switch t.Kind() {
	case reflect.Pointer:
		return valueName(t.Elem())
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "boolean"
	case reflect.Slice:
		return "texts"
	case reflect.Map, reflect.Struct:
		return "table"
	}
	return "number"
}
