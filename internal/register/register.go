// Package register reads the requirements (docs/requirements/*.tsv), their citations in tests and
// the answers in docs/requirements/deviations.md, and lists what is open. `make trace` prints it;
// a test checks that nothing is.
package register

import (
	"bufio"
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Files of the register, below the project's root.
var Files = []string{"docs/requirements/iwarp.tsv", "docs/requirements/tcp.tsv"}

// answersFile says why a row has no test.
const answersFile = "docs/requirements/deviations.md"

// Row is one requirement.
type Row struct {
	ID, Level, Source, Section, Layer, Text, Proof, Note string
}

// Document is what the id begins with: D01, 5044, ...
func (r *Row) Document() string {
	d, _, _ := strings.Cut(r.ID, "-")
	return d
}

// Place is where a test cites something.
type Place struct {
	File string // below the root
	Line int
}

func (p Place) String() string { return fmt.Sprintf("%s:%d", p.File, p.Line) }

// Register is everything known of the requirements.
type Register struct {
	Rows     []Row
	Cited    map[string][]Place // by id, which need not be that of a row
	Answered map[string]bool
	byID     map[string]int
}

// Load reads the register, all tests and the answers below root. An error names the file and line
// to mend.
func Load(root string) (*Register, error) {
	r := &Register{Cited: map[string][]Place{}, Answered: map[string]bool{}, byID: map[string]int{}}
	for _, name := range Files {
		if err := r.readRows(root, name); err != nil {
			return nil, err
		}
	}
	if err := r.readTests(root); err != nil {
		return nil, err
	}
	return r, r.readAnswers(root)
}

// Row looks an id up.
func (r *Register) Row(id string) (Row, bool) {
	i, ok := r.byID[id]
	if !ok {
		return Row{}, false
	}
	return r.Rows[i], true
}

// columns of a row.
const columns = 8

func (r *Register) readRows(root, name string) error {
	data, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		return err
	}
	n := 0
	for line := range strings.Lines(string(data)) {
		if n++; n == 1 {
			continue // names of the columns
		}
		f := strings.Split(strings.TrimRight(line, "\r\n"), "\t")
		if len(f) != columns {
			return fmt.Errorf("%s:%d: %d columns, want %d", name, n, len(f), columns)
		}
		if _, twice := r.byID[f[0]]; twice {
			return fmt.Errorf("%s:%d: %s stands in the register already", name, n, f[0])
		}
		r.byID[f[0]] = len(r.Rows)
		r.Rows = append(r.Rows, Row{f[0], f[1], f[2], f[3], f[4], f[5], f[6], f[7]})
	}
	return nil
}

var (
	citation = regexp.MustCompile(`^\s*(?://|#) req: (.*)$`)
	aTest    = regexp.MustCompile(`^func (Test|Fuzz|Example)`)
	idShape  = regexp.MustCompile(`^[A-Z0-9]+-[A-Za-z0-9.]+(-[A-Za-z0-9.]+)*$`)
)

func (r *Register) readTests(root string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "build") {
			return fs.SkipDir
		}
		if d.IsDir() || !hasTests(path) {
			return nil
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return r.readTest(name, src)
	})
}

// hasTests says whether a file contains tests: in Go, or in the language of tcp's scripts.
func hasTests(path string) bool {
	return strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, ".tcp")
}

// readTest takes the citations of one file: in the comment on top of a test, or within one.
func (r *Register) readTest(name string, src []byte) error {
	sc := bufio.NewScanner(bytes.NewReader(src))
	sc.Buffer(nil, len(src)+1)
	onTop := 0 // line of a citation whose test is still to come
	for n := 1; sc.Scan(); n++ {
		if onTop > 0 && !strings.HasPrefix(sc.Text(), "//") {
			if !aTest.MatchString(sc.Text()) {
				return fmt.Errorf("%v: no test follows this citation", Place{name, onTop})
			}
			onTop = 0
		}
		m := citation.FindStringSubmatch(sc.Text())
		if m == nil {
			continue
		}
		if strings.HasPrefix(sc.Text(), "//") {
			onTop = n
		}
		for _, id := range strings.FieldsFunc(m[1], func(c rune) bool { return c == ',' || c == ' ' }) {
			at := Place{name, n}
			if !idShape.MatchString(id) {
				return fmt.Errorf("%v: %q is no id; a citation is a list of ids, separated by commas", at, id)
			}
			if _, ok := r.byID[id]; !ok {
				return fmt.Errorf("%v cites %s, which is in no register", at, id)
			}
			r.Cited[id] = append(r.Cited[id], at)
		}
	}
	if onTop > 0 {
		return fmt.Errorf("%v: no test follows this citation", Place{name, onTop})
	}
	return sc.Err()
}

// readAnswers takes the ids in the first column of each table.
func (r *Register) readAnswers(root string) error {
	data, err := os.ReadFile(filepath.Join(root, answersFile))
	if err != nil {
		return err
	}
	n := 0
	for line := range strings.Lines(string(data)) {
		n++
		cells := strings.Split(line, "|")
		if len(cells) < 3 {
			continue
		}
		for id := range strings.SplitSeq(cells[1], ",") {
			id = strings.TrimSpace(id)
			if !idShape.MatchString(id) || !strings.ContainsAny(id, "0123456789") {
				continue // a heading
			}
			if _, ok := r.byID[id]; !ok {
				return fmt.Errorf("%s:%d answers %s, which is in no register", answersFile, n, id)
			}
			if r.Answered[id] {
				return fmt.Errorf("%s:%d answers %s again", answersFile, n, id)
			}
			if at := r.Cited[id]; len(at) > 0 {
				return fmt.Errorf("%s:%d answers %s, which %v proves", answersFile, n, id, at[0])
			}
			r.Answered[id] = true
		}
	}
	return nil
}

// Open are the rows that no test cites and docs/requirements/deviations.md does not answer. There
// may be none.
func (r *Register) Open() (open []Row) {
	for _, row := range r.Rows {
		if len(r.Cited[row.ID]) == 0 && !r.Answered[row.ID] {
			open = append(open, row)
		}
	}
	return open
}

// Count of rows of one document and level.
type Count struct {
	Document, Level string
	Rows            int
	Cited           int      // by a test
	Answered        int      // in docs/requirements/deviations.md
	Open            []string // neither
}

// Counts sums up by document, RFCs by number and the others after them, and level.
func (r *Register) Counts() []Count {
	var all []Count
	for _, row := range r.Rows {
		i := slices.IndexFunc(all, func(c Count) bool {
			return c.Document == row.Document() && c.Level == row.Level
		})
		if i < 0 {
			i = len(all)
			all = append(all, Count{Document: row.Document(), Level: row.Level})
		}
		c := &all[i]
		c.Rows++
		switch {
		case len(r.Cited[row.ID]) > 0:
			c.Cited++
		case r.Answered[row.ID]:
			c.Answered++
		default:
			c.Open = append(c.Open, row.ID)
		}
	}
	slices.SortStableFunc(all, func(a, b Count) int {
		if a.Document != b.Document {
			return compareDocuments(a.Document, b.Document)
		}
		return slices.Index(levels, a.Level) - slices.Index(levels, b.Level)
	})
	return all
}

func compareDocuments(a, b string) int {
	x, notX := strconv.Atoi(a)
	y, notY := strconv.Atoi(b)
	switch {
	case notX == nil && notY == nil:
		return x - y
	case notX == nil:
		return -1
	case notY == nil:
		return 1
	}
	return strings.Compare(a, b)
}

// levels in the order of the table.
var levels = []string{"MUST", "MUST NOT", "SHOULD", "SHOULD NOT", "MAY", "FORMAT",
	"EXAMPLE", "CLAIM"}
