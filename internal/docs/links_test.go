package docs

import (
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../.."

// files are the texts of the repository whose names end in one of the endings, or are one.
func files(t *testing.T, endings ...string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name != root && d.Name() != ".ci" && strings.HasPrefix(d.Name(), ".") ||
				d.Name() == "build" || d.Name() == "bin" {
				return fs.SkipDir
			}
			return nil
		}
		for _, ending := range endings {
			if strings.HasSuffix("/"+d.Name(), ending) {
				text, err := os.ReadFile(name)
				if err != nil {
					return err
				}
				rel, err := filepath.Rel(root, name)
				found[filepath.ToSlash(rel)] = string(text)
				return err
			}
		}
		return nil
	})
	require.NoError(t, err)
	require.NotEmpty(t, found)
	return found
}

func exists(name string) bool {
	_, err := os.Stat(filepath.Join(root, filepath.FromSlash(name)))
	return err == nil
}

var (
	code    = regexp.MustCompile("(?s)```.*?```|`[^`\n]*`")
	link    = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	other   = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors are the names under which GitHub finds the headings of a document.
func anchors(text string) map[string]bool {
	names := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		names[strings.ReplaceAll(strings.ToLower(other.ReplaceAllString(m[1], "")), " ", "-")] = true
	}
	return names
}

// broken says what is wrong with the links of a document, or nothing.
func broken(name, text string, documents map[string]string) (wrong []string) {
	for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(text, ""), -1) {
		u, err := url.Parse(m[1])
		if err != nil || u.Scheme != "" || u.Host != "" {
			continue // of the net: not looked at
		}
		to := name
		if u.Path != "" {
			to = path.Join(path.Dir(name), u.Path)
		}
		switch target, document := documents[to]; {
		case !exists(to):
			wrong = append(wrong, m[1]+": no such file")
		case u.Fragment != "" && document && !anchors(target)[u.Fragment]:
			wrong = append(wrong, m[1]+": no such heading")
		}
	}
	return wrong
}

// Every relative link of a document leads to a file, and to a heading of it if it names one.
func TestLinks(t *testing.T) {
	documents, links := files(t, ".md"), 0
	for name, text := range documents {
		links += len(link.FindAllString(text, -1))
		for _, w := range broken(name, text, documents) {
			t.Errorf("%s: %s", name, w)
		}
	}
	require.Greater(t, links, 100)
}

// TestLinks sees each kind of mistake.
func TestLinkMistakes(t *testing.T) {
	documents := map[string]string{"README.md": "# Why: it `is`\n"}
	for text, want := range map[string][]string{
		"[a](README.md) [b](docs/) [c](https://nowhere/x.md) [d](../README.md#why-it-is)": {"../README.md#why-it-is: no such file"},
		"[a](README.md#why-it-is) [b](README.md#why)":                                     {"README.md#why: no such heading"},
		"![a](docs/nothing.svg)\n```\n[b](c.md)\n``` and `[d](e.md)`":                     {"docs/nothing.svg: no such file"},
	} {
		require.Equal(t, want, broken("README.md", text, documents), text)
	}
}

// Every document below docs/ is in the index.
func TestIndex(t *testing.T) {
	documents, index := files(t, ".md"), map[string]bool{"docs/README.md": true}
	for _, m := range link.FindAllStringSubmatch(documents["docs/README.md"], -1) {
		index[path.Join("docs", m[1])] = true
	}
	for name := range documents {
		if strings.HasPrefix(name, "docs/") && !index[name] {
			t.Errorf("docs/README.md has no link to %s", name)
		}
	}
}

// source is a file of ours in a code span.
var source = regexp.MustCompile("`([a-z][\\w-]*(?:/[\\w-]+)+\\.(?:go|c|h|s|sh|tsv|golden))`")

// Every source file that a document names with its folder exists.
func TestSourcesInDocuments(t *testing.T) {
	paths := 0
	for name, text := range files(t, ".md") {
		for _, m := range source.FindAllStringSubmatch(text, -1) {
			paths++
			if !exists(m[1]) && !exists(path.Join(path.Dir(name), m[1])) {
				t.Errorf("%s names %s, which does not exist", name, m[1])
			}
		}
	}
	require.Greater(t, paths, 30)
}

// named are paths of documents in code: docs/, and what belongs to a name.
var named = regexp.MustCompile(`(^|[^\w/.-]|\.\./)(docs/[\w/.-]*\w)`)

// Every path of a document that code, scripts, the Makefile or the tables of requirements name
// exists.
func TestPathsInCode(t *testing.T) {
	paths := 0
	for name, text := range files(t, ".go", ".sh", ".c", ".h", ".tsv", ".golden",
		"/Makefile", "/run") {
		if strings.HasPrefix(name, "internal/docs/") {
			continue
		}
		for _, m := range named.FindAllStringSubmatch(text, -1) {
			paths++
			if !exists(m[2]) {
				t.Errorf("%s names %s, which does not exist", name, m[2])
			}
		}
	}
	require.Greater(t, paths, 30)
}
