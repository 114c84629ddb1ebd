package sim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/rnicd/rnicd/rnic"
)

// Text is the whole Workload as ParseWorkload reads it: JSON, one field a line, without fields that
// are zero. Workloads that failed are kept in this form (testdata/found), because what a seed draws
// changes with Draw.
func (wl Workload) Text() (string, error) {
	encoded, err := json.Marshal(wl)
	if err != nil {
		return "", err
	}
	var fields map[string]any
	d := json.NewDecoder(bytes.NewReader(encoded))
	d.UseNumber() // a float64 does not hold every seed
	if err := d.Decode(&fields); err != nil {
		return "", err
	}
	prune(fields)
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		value, err := json.Marshal(fields[name])
		if err != nil {
			return "", err
		}
		lines = append(lines, fmt.Sprintf("%q: %s", name, value))
	}
	return "{" + strings.Join(lines, ",\n ") + "}\n", nil
}

// prune removes fields that are zero from v and from what it contains. Elements of lists stay.
func prune(v any) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			prune(e)
		}
	case map[string]any:
		for name, e := range v {
			prune(e)
			if isZero(e) {
				delete(v, name)
			}
		}
	}
}

func isZero(v any) bool {
	switch v := v.(type) {
	case json.Number:
		return v == "0"
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return v == nil || reflect.ValueOf(v).IsZero()
}

// ParseWorkload reads what Text wrote, with comments: lines that begin with #. A field that a
// Workload does not have (any more) is an error.
func ParseWorkload(text string) (wl Workload, err error) {
	var kept []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(strings.TrimSpace(line), "#") {
			kept = append(kept, line)
		}
	}
	err = decode([]byte(strings.Join(kept, "")), &wl)
	return wl, err
}

func decode(text []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	return d.Decode(v)
}

// MarshalText writes the name of the kind.
func (k EndKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads the name of a kind.
func (k *EndKind) UnmarshalText(name []byte) error {
	for *k = 0; *k < endKinds; *k++ {
		if k.String() == string(name) {
			return nil
		}
	}
	return fmt.Errorf("sim: ending %q is unknown", name)
}

// named is a Conn whose dialect is written as its name.
type named struct {
	conn
	Dialect string
}

type conn Conn // without methods

// MarshalJSON writes the dialect's name.
func (c Conn) MarshalJSON() ([]byte, error) {
	return json.Marshal(named{conn(c), c.Dialect.String()})
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (c *Conn) UnmarshalJSON(text []byte) (err error) {
	var n named
	if err := decode(text, &n); err != nil {
		return err
	}
	*c = Conn(n.conn)
	c.Dialect, err = rnic.ParseDialect(n.Dialect)
	return err
}
