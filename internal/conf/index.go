package conf

import (
	"bytes"
	"fmt"
	"sort"

	"github.com/pelletier/go-toml/v2/unstable"
)

// place is where something stands in a file, from 1.
type place struct{ line, column int }

// Index says where each key of a file stands, by its path: port[0].tcp.rto_min. What has no place
// was not given.
type Index struct {
	at     map[string]place
	arrays map[string]int // how many elements an array of tables has
	kinds  map[string]unstable.Kind
	single map[string]bool // a table, and no array of them
	lines  []int           // where each begins

	expressions []expression
}

// expression is a key with its value, or the head of a table.
type expression struct {
	begin int // the line's offset
	path  string
	table bool
}

// NewIndex reads a text that is TOML. Unknown keys are in it, too.
func NewIndex(text []byte) (*Index, error) {
	text = bytes.TrimPrefix(text, byteOrderMark)
	ix := &Index{at: map[string]place{}, arrays: map[string]int{}, kinds: map[string]unstable.Kind{},
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
		x := expression{}
		switch e.Kind {
		case unstable.Table, unstable.ArrayTable:
			table = ix.table(e)
			x.path, x.table = table, true
		case unstable.KeyValue:
			x.path = ix.keyValue(table, e)
		default:
			continue
		}
		first := e.Key()
		first.Next()
		x.begin = ix.lines[ix.place(first.Node()).line-1]
		ix.expressions = append(ix.expressions, x)
	}
	return ix, p.Error()
}

// table enters [a.b] or [[a.b]] and returns its path.
func (ix *Index) table(e *unstable.Node) (path string) {
	it := e.Key()
	var last *unstable.Node
	for it.Next() {
		if n := ix.arrays[path]; last != nil && n > 0 {
			path = fmt.Sprintf("%s[%d]", path, n-1)
		}
		last = it.Node()
		path = Join(path, string(last.Data))
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

// keyValue enters a key of a table, and what is in its value. It returns the path.
func (ix *Index) keyValue(table string, e *unstable.Node) (path string) {
	path = table
	var last *unstable.Node
	for it := e.Key(); it.Next(); {
		last = it.Node()
		path = Join(path, string(last.Data))
		if _, ok := ix.at[path]; !ok {
			ix.at[path] = ix.place(last)
		}
	}
	ix.value(path, e.Value())
	return path
}

func (ix *Index) value(path string, v *unstable.Node) {
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
func (ix *Index) place(n *unstable.Node) place { return ix.placeAt(int(n.Raw.Offset)) }

func (ix *Index) placeAt(offset int) place {
	line := sort.SearchInts(ix.lines, offset+1)
	return place{line, offset - ix.lines[line-1] + 1}
}

// expressionAt is the number of the expression that has a place, or -1.
func (ix *Index) expressionAt(line, column int) int {
	if line > len(ix.lines) {
		return -1
	}
	offset := ix.lines[line-1] + column - 1
	return sort.Search(len(ix.expressions), func(i int) bool {
		return ix.expressions[i].begin > offset
	}) - 1
}

// find is the place of a path, or of the nearest table around it that has one.
func (ix *Index) find(path string) place {
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

// Given says whether the file has the key or table at path.
func (ix *Index) Given(path string) bool {
	_, ok := ix.at[path]
	return ok
}

// Join is the path of a key of a table.
func Join(table, key string) string {
	if table == "" {
		return key
	}
	return table + "." + key
}

// Tables is how many [[name]] tables the file has.
func (ix *Index) Tables(name string) int { return ix.arrays[name] }

// Single says whether the file has a table [name], which is no array.
func (ix *Index) Single(name string) bool { return ix.single[name] }
