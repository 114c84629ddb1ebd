// Command trace prints, per document and level, how many requirements there are, how many a test
// cites, how many docs/requirements/deviations.md answers, and which are open: `make trace`. With
// ids as arguments it prints their rows and where they are cited: `make trace ARGS=5044-4.3-1`.
// It fails when a row is open.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/rnicd/rnicd/internal/register"
)

func main() {
	if err := run(os.Stdout, ".", os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "trace:", err)
		os.Exit(1)
	}
}

func run(w io.Writer, root string, ids []string) error {
	r, err := register.Load(root)
	if err != nil {
		return err
	}
	if len(ids) == 0 {
		table(w, r)
		if n := len(r.Open()); n > 0 {
			return fmt.Errorf("rows that are open: %d; cite them in a test, or answer them in "+
				"docs/requirements/deviations.md", n)
		}
		return nil
	}
	var errs []error
	for _, id := range ids {
		errs = append(errs, explain(w, r, id))
	}
	return errors.Join(errs...)
}

func table(w io.Writer, r *register.Register) {
	legend(w, r)
	fmt.Fprintln(w, "| document | level | rows | cited | answered | open | the open ones |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|---|")
	var sum register.Count
	open := 0
	for _, c := range r.Counts() {
		fmt.Fprintf(w, "| %s | %s | %d | %d | %d | %d | %s |\n",
			c.Document, c.Level, c.Rows, c.Cited, c.Answered, len(c.Open), strings.Join(c.Open, " "))
		sum.Rows, sum.Cited, sum.Answered, open = sum.Rows+c.Rows, sum.Cited+c.Cited,
			sum.Answered+c.Answered, open+len(c.Open)
	}
	fmt.Fprintf(w, "| all | | %d | %d | %d | %d | |\n", sum.Rows, sum.Cited, sum.Answered, open)
}

// legend says what the table's words mean, and which documents have no number.
func legend(w io.Writer, r *register.Register) {
	fmt.Fprintln(w, "A row is one rule of a document. It is cited when a test names it, answered "+
		"when docs/requirements/deviations.md says why none does,")
	fmt.Fprintln(w, "and open otherwise. `make trace ARGS=ID` prints a row and the tests that cite "+
		"it. Documents are RFCs, except these:")
	told := map[string]bool{}
	for _, row := range r.Rows {
		d := row.Document()
		if _, err := strconv.Atoi(d); err != nil && !told[d] {
			told[d] = true
			fmt.Fprintf(w, "    %s  %s\n", d, row.Source)
		}
	}
	fmt.Fprintln(w)
}

func explain(w io.Writer, r *register.Register, id string) error {
	row, ok := r.Row(id)
	if !ok {
		return fmt.Errorf("%s is in no register", id)
	}
	fmt.Fprintf(w, "%s %s, %s section %s: %s\n", row.ID, row.Level, row.Source, row.Section, row.Text)
	for _, at := range r.Cited[id] {
		fmt.Fprintf(w, "    %v\n", at)
	}
	if r.Answered[id] {
		fmt.Fprintln(w, "    docs/requirements/deviations.md")
	}
	return nil
}
