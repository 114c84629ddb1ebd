package docs

import (
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// guides are the documents that lead through the code by names in backticks.
var guides = []string{"ARCHITECTURE.md", "CONTRIBUTING.md"}

var (
	span      = regexp.MustCompile("`([^`\n]+)`")
	fileName  = regexp.MustCompile(`^[\w/.-]+\.(?:go|c|h|s|sh|tsv|md|svg)$`)
	folder    = regexp.MustCompile(`^[a-z][\w-]*(?:/[\w-]+)*/?$`)
	qualified = regexp.MustCompile(`^([a-z]\w*)\.([A-Z]\w*)(?:\.([A-Z]\w*))?$`)
	plainName = regexp.MustCompile(`^(?:[A-Z]\w*[a-z]\w*|[a-z]+[A-Z]\w*)(?:\.[A-Z]\w*)*$`)
	newBlock  = regexp.MustCompile(`\n(?:\n|- |\d+\. |\|)`)
)

// sources are what the folders of Go packages have: their text, without tests.
type sources struct {
	text  map[string]string   // of a folder
	bases map[string][]string // folders with this last part
	files map[string]bool
}

func readSources(t *testing.T) *sources {
	s := &sources{text: map[string]string{}, bases: map[string][]string{}, files: map[string]bool{}}
	for name, text := range files(t, ".go", ".c", ".h", ".s", ".sh", ".tsv", ".md", ".svg") {
		s.files[name] = true
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		dir := path.Dir(name)
		if s.text[dir] == "" {
			s.bases[path.Base(dir)] = append(s.bases[path.Base(dir)], dir)
		}
		s.text[dir] += text
	}
	return s
}

// has says whether one of the folders has name as a word.
func (s *sources) has(name string, folders ...string) bool {
	word := regexp.MustCompile(`\b` + name + `\b`)
	for _, dir := range folders {
		if word.MatchString(s.text[dir]) {
			return true
		}
	}
	return false
}

// strays are the names in a document's backticks that lead nowhere. A file without a folder is in
// one that the same paragraph, item or row names, and so is an identifier without a package; in any
// of ours if it names none. An identifier with a package is there.
func (s *sources) strays(text string) (wrong []string) {
	for _, block := range newBlock.Split("\n"+text, -1) {
		var here, names, bare []string // folders; identifiers and files without one
		for _, m := range span.FindAllStringSubmatch(block, -1) {
			name := m[1]
			dir := strings.TrimSuffix(name, "/")
			parts := qualified.FindStringSubmatch(name)
			switch {
			case fileName.MatchString(name) && strings.Contains(name, "/"):
				if !s.files[name] {
					wrong = append(wrong, name)
				}
				here = append(here, path.Dir(name))
			case fileName.MatchString(name):
				if !s.files[name] {
					bare = append(bare, name)
				}
			case folder.MatchString(name) && s.text[dir] != "":
				here = append(here, dir)
			case folder.MatchString(name) && len(s.bases[dir]) > 0:
				here = append(here, s.bases[dir]...)
			case parts != nil && len(s.bases[parts[1]]) > 0:
				dirs := s.bases[parts[1]]
				if !s.has(parts[2], dirs...) || parts[3] != "" && !s.has(parts[3], dirs...) {
					wrong = append(wrong, name)
				}
				here = append(here, dirs...)
			case plainName.MatchString(name):
				names = append(names, name)
			}
		}
		if len(here) == 0 {
			for dir := range s.text {
				here = append(here, dir)
			}
		}
		for _, name := range bare {
			if !slices.ContainsFunc(here, func(dir string) bool { return s.files[dir+"/"+name] }) {
				wrong = append(wrong, name)
			}
		}
		for _, name := range names {
			for _, part := range strings.Split(name, ".") {
				if !s.has(part, here...) {
					wrong = append(wrong, name)
				}
			}
		}
	}
	return wrong
}

// Every file and every identifier that the guides name in backticks is where they say.
func TestNamesInGuides(t *testing.T) {
	s := readSources(t)
	for _, guide := range guides {
		text, err := os.ReadFile(path.Join(root, guide))
		require.NoError(t, err)
		for _, name := range s.strays(code3.ReplaceAllString(string(text), "")) {
			t.Errorf("%s names `%s`, which is not there", guide, name)
		}
	}
}

// code3 is a block of code.
var code3 = regexp.MustCompile("(?s)```.*?```")

func TestStrays(t *testing.T) {
	s := &sources{
		text: map[string]string{"tcp": "func (c *Conn) Room() int\nfunc listOf()",
			"rnic/internal/qp": "type Engine struct{}"},
		bases: map[string][]string{"tcp": {"tcp"}, "qp": {"rnic/internal/qp"}},
		files: map[string]bool{"tcp/conn.go": true, "tcp/rack.go": true,
			"rnic/internal/qp/engine.go": true},
	}
	for text, want := range map[string][]string{
		"`tcp/conn.go`, `rack.go`: `Room`":                    nil,
		"`tcp`: `rack.go`; `qp.Engine`, `engine.go`":          nil,
		"`tcp/conn.go`, `engine.go`":                          {"engine.go"},
		"`rnic/internal/qp/engine.go`, `conn.go`":             {"conn.go"},
		"`tcp/conn.go`\n\n`qp` `rack.go`":                     {"rack.go"},
		"- `tcp/conn.go`\n- `qp`: `rack.go`":                  {"rack.go"},
		"`tcp/gone.go`":                                       {"tcp/gone.go"},
		"`tcp.Conn.Room`, `tcp.Conn.Gone`, `qp.Conn`":         {"tcp.Conn.Gone", "qp.Conn"},
		"`tcp/conn.go` `listOf`, `setOf`, `Engine`":           {"setOf", "Engine"},
		"`Room` and `Engine`, `make lint`, `--pmd`, `nobody`": nil,
		"`Rooms`": {"Rooms"},
	} {
		require.Equal(t, want, s.strays(text), text)
	}
}
