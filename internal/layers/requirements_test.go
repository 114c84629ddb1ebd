package layers

import (
	"bufio"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	citation = regexp.MustCompile(`^\s*// req: (.*)$`)
	reqID    = regexp.MustCompile(`^[A-Z0-9]+-[A-Za-z0-9.]+(-[A-Za-z0-9.]+)*$`)
)

// register reads the ids of all rows.
func register(t *testing.T) map[string]bool {
	ids := map[string]bool{}
	for _, name := range []string{"iwarp.tsv", "tcp.tsv"} {
		f, err := os.Open(filepath.Join("../../docs/requirements", name))
		require.NoError(t, err)
		defer f.Close()
		sc := bufio.NewScanner(f)
		for sc.Scan() {
			id, _, ok := strings.Cut(sc.Text(), "\t")
			require.True(t, ok, "%s: a row without columns", name)
			require.False(t, ids[id] && id != "id", "%s: %s twice", name, id)
			ids[id] = true
		}
		require.NoError(t, sc.Err())
	}
	return ids
}

// Every requirement that a test cites exists.
func TestCitedRequirementsExist(t *testing.T) {
	ids := register(t)
	cited := map[string]bool{}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		src, err := os.ReadFile(path)
		require.NoError(t, err)
		for n, line := range strings.Split(string(src), "\n") {
			m := citation.FindStringSubmatch(line)
			if m == nil {
				continue
			}
			for _, id := range strings.FieldsFunc(m[1], func(r rune) bool { return r == ',' || r == ' ' }) {
				require.Regexp(t, reqID, id, "%s:%d", path, n+1)
				require.True(t, ids[id], "%s:%d cites %s, which is in no register", path, n+1, id)
				cited[id] = true
			}
		}
		return nil
	})
	require.NoError(t, err)
	t.Logf("%d of %d requirements cited", len(cited), len(ids)-1)
	require.Greater(t, len(cited), 300)
}
