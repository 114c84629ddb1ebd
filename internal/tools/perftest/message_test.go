package perftest

import (
	"bytes"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/tools/perf"
)

// line is one message of a transcript.
type line struct {
	from   string
	octets []byte
}

// transcript is what two Linux hosts said on the first connection of a program of perftest 4.5's
// (iterations 10), read off a capture.
func transcript(t testing.TB, p Program) (all []line) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", p.String()+".txt"))
	require.NoError(t, err)
	for l := range strings.Lines(string(b)) {
		from, text, ok := strings.Cut(strings.TrimSpace(l), " ")
		require.True(t, ok)
		octets, err := hex.DecodeString(text)
		require.NoError(t, err)
		all = append(all, line{from, octets})
	}
	return all
}

// Every message that perftest's programs send is what our codec makes of what it reads, octet for
// octet, and comes at the place where our script has it.
func TestTranscripts(t *testing.T) {
	for _, p := range Programs {
		said := transcript(t, p)
		for i, want := range lengths(p) {
			require.Equal(t, "client", said[2*i].from, "%v", p)
			require.Equal(t, "server", said[2*i+1].from, "%v", p)
			for _, l := range said[2*i : 2*i+2] {
				require.Len(t, l.octets, want, "%v, message %d", p, i+1)
				require.Equal(t, l.octets, again(t, l.octets), "%v, message %d", p, i+1)
			}
		}
		require.Len(t, said, 2*len(lengths(p)), "%v", p)
	}
}

// lengths are those of the messages of one end.
func lengths(p Program) []int {
	n := []int{versionLen, numberLen, numberLen, mtuLen, placeLen, placeLen, placeLen}
	places := func(k int) {
		for range k {
			n = append(n, placeLen)
		}
	}
	places(len(p.rounds()) - 1)
	if p.Op == perf.Send { // before the test
		places(1)
	}
	if p.figures(false) {
		places(1)
		n = append(n, figureLen, figureLen, figureLen, figureLen, figureLen)
	}
	if p.closes() {
		places(1)
	}
	return n
}

// again reads a message and writes it.
func again(t testing.TB, b []byte) []byte {
	switch len(b) {
	case versionLen:
		h := Hello(b)
		require.NoError(t, h.check())
		return h[:]
	case mtuLen:
		m, err := parseMTU(b)
		require.NoError(t, err)
		return m.marshal()
	case placeLen:
		p := parsePlace(b)
		return p.marshal()
	case figureLen:
		var r Report
		for i := range 5 {
			r.take(i, b)
			require.Equal(t, b, r.marshal()[i])
		}
	}
	return b
}

// What a client's figures were: 10 messages of 4096 octets.
func TestTranscriptFigures(t *testing.T) {
	said := transcript(t, Programs[0])
	var r Report
	for i := range 5 {
		r.take(i, said[2*(10+i)].octets)
	}
	require.EqualValues(t, []uint64{4096, 10}, []uint64{r.Size, r.Iterations})
	require.InDelta(t, 2.1, r.Peak, 0.1)
	require.Greater(t, r.Peak, r.Average)
}

func FuzzMessages(f *testing.F) {
	for _, p := range Programs {
		for _, l := range transcript(f, p) {
			f.Add(l.octets)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		switch len(b) {
		case versionLen:
			h := Hello(b)
			require.Equal(t, bytes.Equal(b, []byte("6.06\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00")),
				h.check() == nil)
		case mtuLen:
			if m, err := parseMTU(b); err == nil {
				require.Equal(t, b, m.marshal())
			} else {
				require.ErrorIs(t, err, errMalformed)
			}
		case placeLen:
			p := parsePlace(b)
			require.Equal(t, b, p.marshal())
		}
	})
}
