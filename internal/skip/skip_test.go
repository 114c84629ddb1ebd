package skip

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// recorder is a test that only notes how it ended.
type recorder struct {
	testing.TB
	end string
}

func (r *recorder) Helper() {}

func (r *recorder) Skip(args ...any) {
	r.end = "skip: " + fmt.Sprint(args...)
	runtime.Goexit()
}

func (r *recorder) Skipf(format string, args ...any) { r.Skip(fmt.Sprintf(format, args...)) }

func (r *recorder) Fatalf(format string, args ...any) {
	r.end = "fatal: " + fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func record(f func(t testing.TB)) string {
	r := &recorder{end: "went on"}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(r)
	}()
	<-done
	return r.end
}

// What is missing skips a test, and where skips are forbidden fails it; an exception skips it
// either way.
func TestSkips(t *testing.T) {
	missing := func(t testing.TB) { Missing(t, "needs %s", "root") }
	because := func(t testing.TB) { Because(t, GiBPages, "%d free", 0) }
	for _, v := range []string{"", "0", "1", "yes"} {
		t.Setenv(Variable, v)
		want := "skip: needs root"
		if v == "1" || v == "yes" {
			want = "fatal: RNICD_NO_SKIP forbids to skip this test, which cannot run here: needs root"
		}
		require.Equal(t, want, record(missing), "%q", v)
		require.Equal(t, "skip: pages of 1 GiB are not as the test wants them: 0 free",
			record(because), "%q", v)
	}
}
