package sim

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/sample"
)

// alike is how many seeds each found Workload is played with: its own, and those after it, in case
// what failed needs some luck again after the code has changed.
const alike = 12

// What drawn seeds have found, each as a Workload of its own: what a seed draws changes with Draw.
// A file of testdata/found is what TestSeeds printed of a Workload that failed; its name says the
// cause, and so do its comments, at greater length.
func TestFound(t *testing.T) {
	files, err := filepath.Glob("testdata/found/*")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range sample.Of(t, 20, files) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			wl := workload(t, file)
			for seed := wl.Seed; seed < wl.Seed+alike; seed++ {
				again := wl
				again.Seed = seed
				_, err := play(again)
				require.NoErrorf(t, err, "%v", again)
			}
		})
	}
}

// What a Workload that failed is printed as is the same Workload again.
func TestWorkloadText(t *testing.T) {
	for seed := range uint64(200) {
		wl := Draw(seed + 1<<63)
		text, err := wl.Text()
		require.NoError(t, err)
		again, err := ParseWorkload("# why\n" + text)
		require.NoError(t, err, text)
		require.Equal(t, wl, again, text)
	}
	for _, text := range []string{
		`{"Seeds": 1}`, `{"Conns": [{"Dialect": "rfc5044", "Depths": 1}]}`,
		`{"Conns": [{"Dialect": "rfc1"}]}`, `{"Ending": {"Kind": "late"}}`,
	} {
		_, err := ParseWorkload(text)
		require.Error(t, err, text)
	}
}
