package switchd

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/vswitch"
	"github.com/rnicd/rnicd/pmd/memif"
)

// Each process that attaches is told, however short its visit is.
func TestVisitsAreTold(t *testing.T) {
	never := vswitch.PeerStatus{Err: errors.New("no peer yet")}
	in := func(times uint64, pid int32) vswitch.PeerStatus {
		return vswitch.PeerStatus{Attached: true, Times: times, Peer: memif.Peer{PID: pid, Name: "c"}}
	}
	out := func(times uint64, pid int32) vswitch.PeerStatus {
		return vswitch.PeerStatus{Times: times, Peer: memif.Peer{PID: pid, Name: "c"},
			Err: errors.New("EOF")}
	}
	attached := func(pid string) string { return "attached pid=" + pid + " uid=0 gid=0 client=c" }
	for name, c := range map[string]struct {
		was, is vswitch.PeerStatus
		want    []string
	}{
		"nobody":         {never, never, nil},
		"one comes":      {never, in(1, 7), []string{attached("7")}},
		"one stays":      {in(1, 7), in(1, 7), nil},
		"one goes":       {in(1, 7), out(1, 7), []string{"detached pid=7 why=EOF"}},
		"a short visit":  {never, out(1, 7), []string{attached("7"), "detached pid=7 why=EOF"}},
		"another":        {in(1, 7), in(2, 8), []string{`detached pid=7 why="in order"`, attached("8")}},
		"the same again": {in(1, 7), in(2, 7), []string{`detached pid=7 why="in order"`, attached("7")}},
		"several": {out(1, 7), out(4, 9),
			[]string{attached("9") + " others_before=2", "detached pid=9 why=EOF"}},
		"a program made anew": {in(5, 7), in(1, 7),
			[]string{`detached pid=7 why="in order"`, attached("7")}},
		"made anew, and nobody": {out(5, 7), never, nil},
	} {
		var b strings.Builder
		tellVisits(slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{
			ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
					return slog.Attr{}
				}
				return a
			}})), c.was, c.is)
		var want string
		for _, line := range c.want {
			want += "msg=" + line + "\n"
		}
		require.Equal(t, want, b.String(), name)
	}
}
