package layers

import (
	"bytes"
	"go/scanner"
	"go/token"
	"os"
	"os/exec"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// columns is how long a line may be, where a tab counts as one.
const columns = 100

// longToken is the length of a string literal that is left whole, so that it can be searched for.
const longToken = 40

// Code, comments and prose end within 100 columns. What cannot be broken may be longer: a string,
// a table or picture in a comment, a row of a table, code in Markdown.
func TestColumns(t *testing.T) {
	list := exec.Command("git", "ls-files", "*.go", "*.c", "*.h", "*.md")
	list.Dir = "../.."
	out := must(list.Output())(t)
	files := strings.Fields(string(out))
	require.Greater(t, len(files), 500)
	for _, name := range files {
		text, err := os.ReadFile("../../" + name)
		if os.IsNotExist(err) {
			continue
		}
		require.NoError(t, err)
		var long []int
		switch {
		case strings.HasSuffix(name, ".go"):
			long = longGo(text)
		case strings.HasSuffix(name, ".md"):
			long = longMarkdown(string(text))
		case !bytes.Contains(text, []byte("TEXT")): // else an assembler's
			long = longLines(strings.Split(string(text), "\n"))
		}
		for _, line := range long {
			t.Errorf("%s:%d has more than %d columns", name, line, columns)
		}
	}
}

// longLines are the numbers of lines that are too long.
func longLines(lines []string) (long []int) {
	for i, line := range lines {
		if utf8.RuneCountInString(line) > columns {
			long = append(long, i+1)
		}
	}
	return long
}

// longGo leaves out lines with a long string and comments of several spaces in a row, which are
// tables and pictures.
func longGo(src []byte) (long []int) {
	if bytes.HasPrefix(src, []byte("// Code generated")) {
		return nil
	}
	excused := map[int]bool{}
	file := token.NewFileSet().AddFile("", -1, len(src))
	var s scanner.Scanner
	s.Init(file, src, nil, scanner.ScanComments)
	for {
		pos, kind, lit := s.Scan()
		if kind == token.EOF {
			break
		}
		text := strings.TrimLeft(strings.TrimPrefix(lit, "//"), " ")
		table := kind == token.COMMENT && (len(lit)-len(text) > 3 || strings.HasPrefix(lit, "//\t") ||
			strings.HasPrefix(text, "Output:") || strings.Contains(text, "  "))
		if kind == token.STRING && len(lit) >= longToken || table {
			for line := range strings.Count(lit, "\n") + 1 {
				excused[file.Line(pos)+line] = true
			}
		}
	}
	for _, line := range longLines(strings.Split(string(src), "\n")) {
		if !excused[line] {
			long = append(long, line)
		}
	}
	return long
}

func longMarkdown(text string) (long []int) {
	lines := strings.Split(text, "\n")
	code := false
	for i, line := range lines {
		trimmed := strings.TrimLeft(line, " ")
		if strings.HasPrefix(trimmed, "```") {
			code = !code
		}
		if code || strings.HasPrefix(trimmed, "|") || strings.HasPrefix(line, "    ") {
			lines[i] = ""
		}
	}
	return longLines(lines)
}
