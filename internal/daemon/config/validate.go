package config

import (
	"fmt"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/rnicd/rnicd/internal/daemon/control"
	"github.com/rnicd/rnicd/internal/port"
	"github.com/rnicd/rnicd/rnic"
)

// validator collects what is wrong.
type validator struct {
	c       *Config
	drivers port.Drivers
	errs    Errors
}

var subscripts = regexp.MustCompile(`\[\d+\]`)

// wrong enters a mistake at a path.
func (v *validator) wrong(path, format string, args ...any) {
	at := v.c.index.find(path)
	v.errs = append(v.errs, &Error{v.c.File, at.line, at.column, subscripts.ReplaceAllString(path, ""),
		fmt.Sprintf(format, args...)})
}

func (v *validator) given(path string) bool { return v.c.index.given(path) }

// line is where something stands, for the errors of others.
func (v *validator) line(path string) int { return v.c.index.find(path).line }

func (v *validator) validate() {
	c := v.c
	for _, array := range []string{"port", "service"} {
		if c.index.single[array] {
			v.wrong(array, "want double brackets, [[%s]]: there may be several", array)
		}
	}
	v.units(reflect.ValueOf(c).Elem(), "")
	if len(v.errs) > 0 { // the rest would say things that are not meant
		return
	}
	v.oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")
	v.oneOf("log.format", c.Log.Format, "text", "json")
	v.span("limits.poller_stall", time.Duration(c.Limits.PollerStall), pollerStallMin, time.Hour)
	v.control(&c.Control, control.DefaultPath)
	v.metrics(&c.Metrics)
	v.tcp("tcp", &c.TCP)
	v.mpa()
	if len(c.Ports) == 0 {
		v.wrong("port", "no port; a daemon needs one: [[port]] with name and addresses")
	}
	for i := range c.Ports {
		v.port(i)
	}
	v.ports()
	for i := range c.Services {
		v.service(i)
	}
	v.services()
	v.hostsOfOthers()
	v.listenTogether()
	v.socketsTogether()
}

// units refuses numbers where a unit is missing, and sizes below 0.
func (v *validator) units(t reflect.Value, path string) {
	for i := range t.NumField() {
		f, key := t.Field(i), t.Type().Field(i).Tag.Get("toml")
		if key == "" || key == "-" {
			continue
		}
		at := join(path, key)
		switch {
		case f.Kind() == reflect.Struct:
			v.units(f, at)
		case f.Kind() == reflect.Slice && f.Type().Elem().Kind() == reflect.Struct:
			for j := range f.Len() {
				v.units(f.Index(j), fmt.Sprintf("%s[%d]", at, j))
			}
		case f.Type() == reflect.TypeFor[Duration]() && v.c.index.kinds[at] == unstable.Integer:
			v.wrong(at, "%d: want a duration, as \"500ms\", \"10s\" or \"1m30s\"", f.Int())
		case f.Type() == reflect.TypeFor[Size]() && f.Int() < 0:
			v.wrong(at, "%d: want 0 or more octets", f.Int())
		}
	}
}

// pollerStallMin bounds how often the watchdog looks: four times in this.
const pollerStallMin = 50 * time.Millisecond

func (v *validator) oneOf(path, value string, names ...string) {
	if !slices.Contains(names, value) {
		last := len(names) - 1
		v.wrong(path, "%q: want %s or %s", value, strings.Join(names[:last], ", "), names[last])
	}
}

func (v *validator) span(path string, d, least, most time.Duration) {
	if d < least || d > most {
		v.wrong(path, "%v: want %v to %v", d, least, most)
	}
}

// number refuses what is out of bounds.
func (v *validator) number(path string, n, least, most int64) {
	if n < least || n > most {
		v.wrong(path, "%d: want %d to %d", n, least, most)
	}
}

var nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,31}$`)

// name refuses one that is not there, or that one of its kind has already.
func (v *validator) name(kind string, i int, of func(int) string) {
	path, name := fmt.Sprintf("%s[%d].name", kind, i), of(i)
	if !nameForm.MatchString(name) {
		v.wrong(path, "%q: want a name of a to z, 0 to 9, - and _, 32 of them at most", name)
		return
	}
	for j := range i {
		if of(j) == name {
			v.wrong(path, "%q: the %s in line %d has this name; choose another", name, kind,
				v.line(fmt.Sprintf("%s[%d].name", kind, j)))
			return
		}
	}
}

// useless refuses keys of a table that are for others: the user that gave one believes that it does
// something. mine says whether a key is for this table by its of.
func (v *validator) useless(path, what string, table any, mine func(of []string) bool) {
	t := reflect.TypeOf(table)
	for i := range t.NumField() {
		of, ok := t.Field(i).Tag.Lookup("of")
		at := join(path, t.Field(i).Tag.Get("toml"))
		if ok && v.given(at) && !mine(strings.Split(of, ",")) {
			v.wrong(at, "of no use to %s: it is for %s; leave it out", what,
				strings.ReplaceAll(of, ",", ", "))
		}
	}
}

// control finds out where the socket is to be; byDefault: unless the file says so.
func (v *validator) control(c *Control, byDefault func() string) {
	var err error
	if c.Perm, err = control.ParseMode(c.Mode); err != nil {
		v.wrong("control.mode", "%v", err)
	}
	switch {
	case c.Socket == "off":
	case !v.given("control.socket"):
		if c.Path = byDefault(); !v.socketPath("control.socket", c.Path) { // of XDG_RUNTIME_DIR
			c.Path = ""
		}
	case !filepath.IsAbs(c.Socket):
		v.wrong("control.socket", "%q: want a path that begins with /, or off", c.Socket)
	case v.socketPath("control.socket", c.Socket):
		c.Path = c.Socket
	}
}

// mpa refuses dialects that cannot be served. A transfer begins with private data, so a dialect
// without frames is of no use to it.
func (v *validator) mpa() {
	var dialects []rnic.Dialect
	for i, name := range v.c.MPA.Dialects {
		d, err := rnic.ParseDialect(name)
		if err != nil || d.PrivateDataMax() == 0 {
			v.wrong(fmt.Sprintf("mpa.dialects[%d]", i), "%q: want rddp-01, rfc5044, rtr or rfc6581", name)
			continue
		}
		dialects = append(dialects, d)
	}
	if v.given("mpa.dialects") && len(v.c.MPA.Dialects) == 0 {
		v.wrong("mpa.dialects", "empty, so that none would be served; leave it out for all")
	}
	for i := range v.c.Services {
		v.c.Services[i].Dialects = dialects
	}
}
