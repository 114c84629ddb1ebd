package layers

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What modules by themselves import of this one is there: go build of this module does not see
// them, and so not that a package which they import has moved.
func TestModulesImportWhatIsThere(t *testing.T) {
	const root = "../.."
	found := map[string]bool{}
	for _, dir := range []string{"deploy/kubernetes", "pmd/godpdk"} {
		look := func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
				return err
			}
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
			if err != nil {
				return err
			}
			for _, spec := range f.Imports {
				name, err := strconv.Unquote(spec.Path.Value)
				if err != nil {
					return err
				}
				if name, ours := strings.CutPrefix(name, module); ours {
					files, err := filepath.Glob(filepath.Join(root, name, "*.go"))
					if err != nil {
						return err
					}
					if len(files) == 0 {
						t.Errorf("%s imports %s, which is not there", path, name)
					}
					found[dir] = true
				}
			}
			return nil
		}
		require.NoError(t, filepath.WalkDir(filepath.Join(root, dir), look))
		require.True(t, found[dir], "%s imports nothing of ours", dir)
	}
}
