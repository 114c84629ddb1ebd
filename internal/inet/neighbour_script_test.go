package inet

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The tests of Neighbours are written in a language of one event a line, with what is to come of it
// after "->":
//
//	@0    lookup A f1      -> queued ask     the MAC when known; "queued" or "refused"; "ask" when a request is due
//	@0.2  reply A m1       -> silence        ARP packets by way of Input: reply, request A m1 us, request A m1 B
//	      take             -> f1>m1          all of Take; "nothing"
//	@31   tick             -> A@m1           all of Tick: address@MAC or address@all; "nothing"
//	      dropped          -> f1 f2          all of TakeDropped
//	      deadline         -> 32             seconds or "never"
//	      knows A          -> room           "known", and "room" for another frame or "full"
//	      count Moved      -> 0              a field of Stats
//
// @ sets the time in seconds, which then stays. A to Z are addresses, us is our own, m1 to m99
// are MACs, f1.. frames.
type neighbourScript struct {
	t   *testing.T
	n   *Neighbours[int]
	now int64
}

const scriptSecond = 1e9

var (
	ourIP  = ip4(10, 0, 0, 1)
	ourMAC = MAC{2, 0, 0, 0, 1, 0}
)

// runNeighbours plays a script on a new table and returns it.
func runNeighbours(t *testing.T, cfg NeighbourConfig, script string) *Neighbours[int] {
	t.Helper()
	s := &neighbourScript{t: t, n: NewNeighbours[int](cfg)}
	for number, line := range strings.Split(script, "\n") {
		event, want, expects := strings.Cut(strings.TrimSpace(line), "->")
		words := strings.Fields(event)
		if len(words) == 0 {
			continue
		}
		if at, ok := strings.CutPrefix(words[0], "@"); ok {
			s.now = s.seconds(at)
			words = words[1:]
		}
		got := s.do(words)
		if expects {
			require.Equal(t, strings.TrimSpace(want), got, "line %d: %s", number, line)
		}
	}
	return s.n
}

func (s *neighbourScript) do(words []string) string {
	switch words[0] {
	case "lookup":
		return s.lookup(s.ip(words[1]), words[2])
	case "knows":
		ip := s.ip(words[1])
		known, full := s.n.Knows(&ip)
		return map[bool]string{true: "known ", false: ""}[known] +
			map[bool]string{true: "full", false: "room"}[full]
	case "learn":
		s.n.Learn(s.now, s.ip(words[1]), s.mac(words[2]), false)
	case "create":
		s.n.Learn(s.now, s.ip(words[1]), s.mac(words[2]), true)
	case "reply":
		return s.input(ARP{Op: ARPReply, SenderIP: s.ip(words[1]), SenderMAC: s.mac(words[2]),
			TargetIP: ourIP, TargetMAC: ourMAC})
	case "request":
		return s.input(ARP{Op: ARPRequest, SenderIP: s.ip(words[1]), SenderMAC: s.mac(words[2]),
			TargetIP: s.ip(words[3])})
	case "take":
		return s.drain(func() (string, bool) {
			f, mac, ok := s.n.Take()
			return fmt.Sprintf("f%d>%s", f, s.macName(mac)), ok
		})
	case "dropped":
		return s.drain(func() (string, bool) {
			f, ok := s.n.TakeDropped()
			return fmt.Sprintf("f%d", f), ok
		})
	case "tick":
		return s.drain(func() (string, bool) {
			ip, mac, ok := s.n.Tick(s.now)
			return s.ipName(ip) + "@" + s.macName(mac), ok
		})
	case "clear":
		s.n.Clear()
	case "count":
		return fmt.Sprint(reflect.ValueOf(s.n.Stats()).FieldByName(words[1]))
	case "deadline":
		if s.n.Deadline() == math.MaxInt64 {
			return "never"
		}
		return strconv.FormatFloat(float64(s.n.Deadline())/scriptSecond, 'g', -1, 64)
	default:
		s.t.Fatalf("no such event: %v", words)
	}
	return ""
}

func (s *neighbourScript) lookup(ip Addr, frame string) string {
	f, err := strconv.Atoi(frame[1:])
	require.NoError(s.t, err)
	mac, known, queued, ask := s.n.Lookup(s.now, ip, f)
	var got []string
	if known {
		require.False(s.t, queued)
		got = append(got, s.macName(mac))
	} else if queued {
		got = append(got, "queued")
	} else {
		got = append(got, "refused")
	}
	if ask {
		got = append(got, "ask")
	}
	return strings.Join(got, " ")
}

func (s *neighbourScript) input(a ARP) string {
	reply, answer, d := s.n.Input(s.now, &a, ourIP, ourMAC)
	if d != DropNone {
		require.False(s.t, answer)
		return "drop " + d.String()
	}
	if !answer {
		return "silence"
	}
	require.Equal(s.t, ARP{Op: ARPReply, SenderMAC: ourMAC, SenderIP: ourIP, TargetMAC: a.SenderMAC,
		TargetIP: a.SenderIP}, reply)
	return "answer"
}

func (s *neighbourScript) drain(next func() (string, bool)) string {
	var got []string
	for range 10000 {
		word, ok := next()
		if !ok {
			if got == nil {
				return "nothing"
			}
			return strings.Join(got, " ")
		}
		got = append(got, word)
	}
	s.t.Fatal("no end")
	return ""
}

func (s *neighbourScript) seconds(word string) int64 {
	v, err := strconv.ParseFloat(word, 64)
	require.NoError(s.t, err)
	return int64(math.Round(v * scriptSecond))
}

func (s *neighbourScript) ip(word string) Addr {
	switch word {
	case "us":
		return ourIP
	case "none":
		return ip4(0, 0, 0, 0)
	case "group":
		return ip4(224, 0, 0, 1)
	case "all":
		return ip4(255, 255, 255, 255)
	}
	return ip4(10, 0, 0, word[0])
}

func (s *neighbourScript) ipName(ip Addr) string { return string(rune(ip[15])) }

func (s *neighbourScript) mac(word string) MAC {
	switch word {
	case "all":
		return Broadcast
	case "zero":
		return MAC{}
	}
	v, err := strconv.Atoi(word[1:])
	require.NoError(s.t, err)
	return MAC{2, 0, 0, 0, 0, byte(v)}
}

func (s *neighbourScript) macName(m MAC) string {
	if m == Broadcast {
		return "all"
	}
	return fmt.Sprintf("m%d", m[5])
}
