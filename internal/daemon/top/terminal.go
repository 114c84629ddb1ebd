package top

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/term"
)

// Control sequences of ECMA-48, and xterm's alternate screen.
const (
	altScreen  = "\x1b[?1049h\x1b[?25l"
	mainScreen = "\x1b[?25h\x1b[?1049l"
	home       = "\x1b[H"
	clearLine  = "\x1b[K"
	clearBelow = "\x1b[J"
	inverse    = "\x1b[7m"
	plainText  = "\x1b[m"
)

// terminal is one in raw mode with the alternate screen.
type terminal struct {
	in, out *os.File
	was     *term.State
}

func openTerminal(in, out *os.File) (*terminal, error) {
	if !term.IsTerminal(int(in.Fd())) || !term.IsTerminal(int(out.Fd())) {
		return nil, fmt.Errorf("top needs a terminal; --once prints one look")
	}
	was, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return nil, err
	}
	t := &terminal{in, out, was}
	if _, err := out.WriteString(altScreen); err != nil {
		t.restore()
		return nil, err
	}
	return t, nil
}

// restore gives the terminal back as it was.
func (t *terminal) restore() {
	_, _ = t.out.WriteString(mainScreen) // it may be gone
	_ = term.Restore(int(t.in.Fd()), t.was)
}

// size is 80 by 24 where the terminal does not say.
func (t *terminal) size() (width, height int) {
	width, height, err := term.GetSize(int(t.out.Fd()))
	if err != nil || width < 1 || height < 1 {
		return 80, 24
	}
	return width, height
}

// draw writes a screen at once, the third line, titles, in inverse.
func (t *terminal) draw(lines []string, titles int) error {
	var b strings.Builder
	b.WriteString(home)
	for i, l := range lines {
		if i > 0 {
			b.WriteString("\r\n")
		}
		if i == titles {
			b.WriteString(inverse + l + plainText)
		} else {
			b.WriteString(l)
		}
		b.WriteString(clearLine)
	}
	b.WriteString(clearBelow)
	_, err := t.out.WriteString(b.String())
	return err
}

// key is what was typed: a letter, or one of these.
const (
	keyUp    = "up"
	keyDown  = "down"
	keyLeft  = "left"
	keyRight = "right"
	keyEnter = "enter"
	keyEnd   = "q"
)

// keysOf takes apart what one read of a terminal has brought.
func keysOf(b []byte) (keys []string) {
	arrows := map[byte]string{'A': keyUp, 'B': keyDown, 'C': keyRight, 'D': keyLeft}
	for len(b) > 0 {
		switch {
		case len(b) >= 3 && b[0] == 0x1b && (b[1] == '[' || b[1] == 'O'):
			if k := arrows[b[2]]; k != "" {
				keys = append(keys, k)
			}
			b = b[3:]
			continue
		case b[0] == 3 || b[0] == 4: // Ctrl-C, Ctrl-D
			keys = append(keys, keyEnd)
		case b[0] == '\r' || b[0] == '\n':
			keys = append(keys, keyEnter)
		case b[0] > ' ' && b[0] < 0x7f:
			keys = append(keys, string(b[0]))
		}
		b = b[1:]
	}
	return keys
}
