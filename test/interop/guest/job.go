package guest

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// Job is a script that runs in a guest.
type Job struct {
	Script string

	guest *Guest
	name  string

	mu      sync.Mutex
	lines   []string
	changed chan struct{} // closed and replaced with every line
	status  int
	ended   bool
	done    chan struct{}
}

// ErrGone is a machine that ended under a job.
var ErrGone = errors.New("guest: the machine has ended")

// take reads one line of the agent's: "| text" or "= status".
func (j *Job) take(line string) {
	kind, rest, _ := strings.Cut(line, " ")
	switch kind {
	case "|":
		j.mu.Lock()
		defer j.mu.Unlock()
		j.lines = append(j.lines, rest)
		close(j.changed)
		j.changed = make(chan struct{})
	case "=":
		status, err := strconv.Atoi(rest)
		if err != nil {
			status = -1
		}
		j.end(status)
	}
}

func (j *Job) end(status int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.ended {
		j.status, j.ended = status, true
		close(j.done)
	}
}

// String is what the job printed so far.
func (j *Job) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(j.lines, "\n")
}

// Done is closed when the job has ended.
func (j *Job) Done() <-chan struct{} { return j.done }

// Wait returns the job's status.
func (j *Job) Wait(ctx context.Context) (int, error) {
	select {
	case <-j.done:
		j.mu.Lock()
		defer j.mu.Unlock()
		if j.status < 0 {
			return j.status, ErrGone
		}
		return j.status, nil
	case <-ctx.Done():
		return 0, fmt.Errorf("guest: %q has not ended: %w; it said:\n%s", j.Script, ctx.Err(), j)
	}
}

// Expect returns the first line that matches, with what its groups matched, as soon as there is
// one.
func (j *Job) Expect(ctx context.Context, pattern string) ([]string, error) {
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, err
	}
	for {
		over := false
		select {
		case <-j.done:
			over = true
		default:
		}
		j.mu.Lock()
		changed := j.changed
		for _, l := range j.lines {
			if m := re.FindStringSubmatch(l); m != nil {
				j.mu.Unlock()
				return m, nil
			}
		}
		j.mu.Unlock()
		if over {
			return nil, fmt.Errorf("guest: %q ended without a line %q; it said:\n%s", j.Script, pattern, j)
		}
		select {
		case <-changed:
		case <-j.done:
		case <-ctx.Done():
			return nil, fmt.Errorf("guest: %q has no line %q: %w; it said:\n%s", j.Script, pattern,
				ctx.Err(), j)
		}
	}
}

// Kill ends the job with all that it started, and waits for that.
func (j *Job) Kill(ctx context.Context) error {
	select {
	case <-j.done:
		return nil
	default:
	}
	k, err := j.guest.Start(fmt.Sprintf(`read -r group </run/%s && kill -KILL -"$group"`, j.name))
	if err != nil {
		return err
	}
	if _, err := k.Wait(ctx); err != nil {
		return err
	}
	_, err = j.Wait(ctx)
	return err
}
