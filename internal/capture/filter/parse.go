package filter

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Error is the first mistake in an expression.
type Error struct {
	Text string
	At   int    // octet, from 0
	Word string // there; empty: the end
	Why  string
}

func (e *Error) Error() string {
	if e.Word == "" {
		return fmt.Sprintf("filter: at its end: %s", e.Why)
	}
	return fmt.Sprintf("filter: at character %d, %q: %s", e.At+1, e.Word, e.Why)
}

// word is a token.
type word struct {
	text string
	at   int
}

type parser struct {
	text  string
	words []word
	next  int
	depth int
	tests []test
}

// node is a part of an expression: where it begins, and the ends that still go nowhere.
type node struct {
	entry   int32
	yes, no []*int32
}

var protocols = map[string]uint16{
	"ip": hasIP4, "ip6": hasIP6, "arp": hasARP, "tcp": hasTCP, "udp": hasUDP, "icmp": hasICMP | hasIP4,
	"icmp6": hasICMP6 | hasIP6,
}

// known are all words of the language, for guesses.
var known = []string{
	"ip", "ip6", "arp", "tcp", "udp", "icmp", "icmp6", "src", "dst", "host", "net", "port",
	"portrange", "ether", "vlan", "inbound",
	"outbound", "and", "or", "not",
}

// Compile makes a Program of an expression. The error is an *Error. An expression of nothing has
// none: the caller then has no Program.
func Compile(text string) (*Program, error) {
	if len(text) > textMax {
		return nil,
			&Error{Text: text, At: textMax, Word: "…", Why: fmt.Sprintf("longer than %d octets", textMax)}
	}
	p := &parser{text: text, words: split(text)}
	p.tests = make([]test, 0, programMax) // nodes point into it
	n, err := p.expression()
	if err != nil {
		return nil, err
	}
	if w := p.peek(); w.text != "" {
		if w.text == ")" {
			return nil, p.wrong(w, "no parenthesis is open")
		}
		return nil, p.wrong(w, "want and, or, or the end"+p.guess(w, "and", "or"))
	}
	set(n.yes, accept)
	set(n.no, reject)
	return &Program{tests: slices.Clip(p.tests), entry: n.entry, text: text}, nil
}

// split cuts text into words, parentheses and operators.
func split(text string) (words []word) {
	for i := 0; i < len(text); {
		switch {
		case strings.IndexByte(" \t\r\n", text[i]) >= 0:
			i++
		case strings.IndexByte("()!", text[i]) >= 0:
			words = append(words, word{text[i : i+1], i})
			i++
		default:
			n := strings.IndexAny(text[i:], " \t\r\n()!")
			if n < 0 {
				n = len(text) - i
			}
			words = append(words, word{text[i : i+n], i})
			i += n
		}
	}
	return words
}

func (p *parser) peek() word {
	if p.next < len(p.words) {
		return p.words[p.next]
	}
	return word{"", len(p.text)}
}

func (p *parser) take() word {
	w := p.peek()
	p.next++
	return w
}

func (p *parser) is(texts ...string) bool {
	if !slices.Contains(texts, p.peek().text) {
		return false
	}
	p.next++
	return true
}

func (p *parser) wrong(w word, why string) error {
	return &Error{Text: p.text, At: w.at, Word: w.text, Why: why}
}

// guess is what w may have been meant for.
func (p *parser) guess(w word, of ...string) string {
	for _, k := range of {
		if near(w.text, k) {
			return "; did you mean " + k + "?"
		}
	}
	return ""
}

// near says that one octet more, less, other, or two exchanged make one of the other.
func near(a, b string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	if len(b)-len(a) > 1 || len(a) < 2 {
		return false
	}
	i := 0
	for i < len(a) && a[i] == b[i] {
		i++
	}
	if len(a) < len(b) {
		return a[i:] == b[i+1:]
	}
	return i == len(a) || a[i+1:] == b[i+1:] || i+1 < len(a) && a[i] == b[i+1] && a[i+1] == b[i] &&
		a[i+2:] == b[i+2:]
}

func set(ends []*int32, to int32) {
	for _, e := range ends {
		*e = to
	}
}

func (p *parser) expression() (node, error) {
	n, err := p.term()
	for err == nil && p.is("or", "||") {
		var m node
		if m, err = p.term(); err == nil {
			set(n.no, m.entry)
			n = node{n.entry, append(n.yes, m.yes...), m.no}
		}
	}
	return n, err
}

func (p *parser) term() (node, error) {
	n, err := p.factor()
	for err == nil && p.is("and", "&&") {
		var m node
		if m, err = p.factor(); err == nil {
			set(n.yes, m.entry)
			n = node{n.entry, m.yes, append(n.no, m.no...)}
		}
	}
	return n, err
}

func (p *parser) factor() (node, error) {
	w := p.peek()
	if p.depth++; p.depth > depthMax {
		return node{},
			p.wrong(w, fmt.Sprintf("more than %d parentheses and nots in each other", depthMax))
	}
	defer func() { p.depth-- }()
	switch {
	case p.is("not", "!"):
		n, err := p.factor()
		return node{n.entry, n.no, n.yes}, err
	case p.is("("):
		n, err := p.expression()
		if err == nil && !p.is(")") {
			if end := p.peek(); end.text != "" {
				return n, p.wrong(end, "want and, or, or a closing parenthesis"+p.guess(end, "and", "or"))
			}
			return n, p.wrong(word{"(", w.at}, "this parenthesis is not closed")
		}
		return n, err
	}
	return p.primitive()
}

// leaf adds a test.
func (p *parser) leaf(w word, t test) (node, error) {
	if len(p.tests) == programMax {
		return node{}, p.wrong(w, fmt.Sprintf("more than %d tests", programMax))
	}
	p.tests = append(p.tests, t)
	i := len(p.tests) - 1
	return node{int32(i), []*int32{&p.tests[i].yes}, []*int32{&p.tests[i].no}}, nil
}

func (p *parser) primitive() (node, error) {
	w := p.take()
	switch w.text {
	case "":
		return node{}, p.wrong(w, "want what to look for, as tcp, host 10.9.0.1 or port 7174")
	case "inbound":
		return p.leaf(w, test{op: opInbound})
	case "outbound":
		n, err := p.leaf(w, test{op: opInbound})
		return node{n.entry, n.no, n.yes}, err
	case "vlan":
		return p.vlan(w)
	}
	need, ok := protocols[w.text]
	if !ok {
		p.next--
		return p.qualified(0)
	}
	switch p.peek().text {
	case "src", "dst", "host", "net", "port", "portrange", "ether":
		return p.qualified(need)
	}
	return p.leaf(w, test{op: opProtocol, bits: need})
}

func (p *parser) vlan(w word) (node, error) {
	v := p.peek()
	if v.text == "" || v.text[0] < '0' || v.text[0] > '9' {
		return p.leaf(w, test{op: opProtocol, bits: hasVLAN})
	}
	p.next++
	id, err := strconv.ParseUint(v.text, 10, 16)
	if err != nil || id > 4095 {
		return node{}, p.wrong(v, "want the number of a VLAN, up to 4095")
	}
	return p.leaf(w, test{op: opVLAN, lo: uint16(id)})
}

// qualified is [side] what; need is the protocol before it.
func (p *parser) qualified(need uint16) (node, error) {
	s := either
	switch {
	case p.is("src"):
		s = source
	case p.is("dst"):
		s = destination
	}
	w := p.take()
	t, err := p.what(w, s, need)
	if err != nil {
		return node{}, err
	}
	n, err := p.leaf(w, t)
	if err != nil || need == 0 {
		return n, err
	}
	m, err := p.leaf(w, test{op: opProtocol, bits: need})
	if err != nil {
		return n, err
	}
	set(n.yes, m.entry)
	return node{n.entry, m.yes, append(n.no, m.no...)}, nil
}

func (p *parser) what(w word, s side, need uint16) (t test, err error) {
	v := w
	if slices.Contains([]string{"host", "net", "port", "portrange", "ether"}, w.text) {
		if v = p.take(); v.text == "" {
			return t, p.wrong(v, "want what comes after "+w.text)
		}
	}
	switch w.text {
	case "net":
		n, err := netip.ParsePrefix(v.text)
		if err != nil || n != n.Masked() {
			return t, p.wrong(v, "want a network, as 10.9.0.0/24 or fd09::/64, without bits after "+
				"its length")
		}
		t = netTest(s, n)
	case "port":
		t.lo, err = number(v.text)
		t.hi = t.lo
	case "portrange":
		first, last, _ := strings.Cut(v.text, "-")
		if t.lo, err = number(first); err == nil {
			t.hi, err = number(last)
		}
		if err != nil || t.hi < t.lo {
			return t, p.wrong(v, "want two ports, the smaller one first, as 7000-7100")
		}
	case "ether":
		mac, err := net.ParseMAC(v.text)
		if err != nil || len(mac) != 6 {
			return t, p.wrong(v, "want an Ethernet address, as 02:00:0a:09:00:01")
		}
		return test{op: opMAC, side: s, mac: [6]byte(mac)}, nil
	default:
		a, err := p.address(w, v, s)
		if err != nil {
			return t, err
		}
		t = netTest(s, netip.PrefixFrom(a, a.BitLen()))
	}
	if t.op == opNet {
		if need&(hasIP4|hasARP) != 0 && !t.addrIsIP4 || need&hasIP6 != 0 && t.addrIsIP4 {
			return t, p.wrong(v, "an address of the other version of IP than what comes before it")
		}
		return t, nil
	}
	if err != nil {
		return t, p.wrong(v, "want a port, up to 65535; services have no names here")
	}
	if need&^(hasTCP|hasUDP|hasIP4|hasIP6) != 0 || need&(hasICMP|hasICMP6) != 0 {
		return t, p.wrong(w, "only TCP and UDP have ports")
	}
	t.op, t.side = opPorts, s
	return t, nil
}

// address is v: after the word host, or bare after src or dst, where it is w too.
func (p *parser) address(w, v word, s side) (netip.Addr, error) {
	a, err := netip.ParseAddr(v.text)
	switch {
	case w.text == "host" || s != either && err == nil: // "src 10.9.0.1"
	case w.text == "":
		return a, p.wrong(w, "want host, net, port, portrange, ether or an address after src and dst")
	case s == either && err == nil:
		return a, p.wrong(w, "want a word before an address, as host or src")
	case slices.Contains(known, w.text):
		return a, p.wrong(w, "want host, net, port, portrange, ether or an address here")
	default:
		return a, p.wrong(w, "no word of the language"+p.guess(w, known...))
	}
	if err != nil || a.Zone() != "" {
		return a, p.wrong(v, "want an address, as 10.9.0.1 or fd09::1; names are not looked up")
	}
	return a.Unmap(), nil
}

func number(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	return uint16(n), err
}
