package config

import (
	"fmt"
	"sort"

	"github.com/pelletier/go-toml/v2/unstable"
)

// place is where something stands in a file, from 1.
type place struct{ line, column int }

// index says where each key of a file stands, by its path: port[0].tcp.rto_min. What has no place
// was not given.
type index struct {
	at     map[string]place
	arrays map[string]int // how many elements an array of tables has
	kinds  map[string]unstable.Kind
	single map[string]bool // a table, and no array of them
	lines  []int           // where each begins
}

// newIndex reads a file that is TOML. Unknown keys are in it, too.
func newIndex(text []byte) (*index, error) {
	ix := &index{at: map[string]place{}, arrays: map[string]int{}, kinds: map[string]unstable.Kind{},
		single: map[string]bool{}, lines: []int{0}}
	for i, b := range text {
		if b == '\n' {
			ix.lines = append(ix.lines, i+1)
		}
	}
	p := &unstable.Parser{}
	p.Reset(text)
	table := ""
	for p.NextExpression() {
		e := p.Expression()
		switch e.Kind {
		case unstable.Table, unstable.ArrayTable:
			table = ix.table(e)
		case unstable.KeyValue:
			ix.keyValue(table, e)
		}
	}
	return ix, p.Error()
}

// table enters [a.b] or [[a.b]] and returns its path.
func (ix *index) table(e *unstable.Node) (path string) {
	it := e.Key()
	var last *unstable.Node
	for it.Next() {
		if n := ix.arrays[path]; last != nil && n > 0 {
			path = fmt.Sprintf("%s[%d]", path, n-1)
		}
		last = it.Node()
		path = join(path, string(last.Data))
	}
	where := ix.place(last)
	if e.Kind == unstable.ArrayTable {
		ix.arrays[path]++
		path = fmt.Sprintf("%s[%d]", path, ix.arrays[path]-1)
	} else {
		ix.single[path] = true
	}
	ix.at[path] = where
	return path
}

// keyValue enters a key of a table, and what is in its value.
func (ix *index) keyValue(table string, e *unstable.Node) {
	path := table
	var last *unstable.Node
	for it := e.Key(); it.Next(); {
		last = it.Node()
		path = join(path, string(last.Data))
		if _, ok := ix.at[path]; !ok {
			ix.at[path] = ix.place(last)
		}
	}
	ix.value(path, e.Value())
}

func (ix *index) value(path string, v *unstable.Node) {
	ix.kinds[path] = v.Kind
	switch v.Kind {
	case unstable.InlineTable:
		for it := v.Children(); it.Next(); {
			if kv := it.Node(); kv.Kind == unstable.KeyValue {
				ix.keyValue(path, kv)
			}
		}
	case unstable.Array:
		i := 0
		for it := v.Children(); it.Next(); {
			if n := it.Node(); n.Kind != unstable.Comment {
				at := fmt.Sprintf("%s[%d]", path, i)
				ix.at[at] = ix.at[path]
				ix.value(at, n)
				i++
			}
		}
	}
}

// place is where a key stands. Parser.Shape would count the lines before it each time.
func (ix *index) place(n *unstable.Node) place {
	at := int(n.Raw.Offset)
	line := sort.SearchInts(ix.lines, at+1)
	return place{line, at - ix.lines[line-1] + 1}
}

// find is the place of a path, or of the nearest table around it that has one.
func (ix *index) find(path string) place {
	for path != "" {
		if at, ok := ix.at[path]; ok {
			return at
		}
		i := len(path) - 1
		for i > 0 && path[i] != '.' && path[i] != '[' {
			i--
		}
		path = path[:i]
	}
	return place{1, 1}
}

func (ix *index) given(path string) bool {
	_, ok := ix.at[path]
	return ok
}

func join(table, key string) string {
	if table == "" {
		return key
	}
	return table + "." + key
}
