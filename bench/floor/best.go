package floor

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/rnicd/rnicd/bench/yard"
)

// finalists are tried again, with as many turns as all before together: of many that are alike the
// first round's fastest was lucky.
const finalists = 4

// Best tries what a Config can be for a payload, in turns, and returns the fastest: first the ways
// of computing the CRC, then buffers and bursts with the best of them, then the fastest of all
// again.
func Best(crew *yard.Crew, payload, copies, turns int, length time.Duration) (Config, error) {
	ranked, err := rank(crew, turns, length, ways(payload, copies))
	if err != nil {
		return Config{}, err
	}
	var sets []Config
	for _, w := range ranked[:2] {
		sets = append(sets, workingSets(w)...)
	}
	again, err := rank(crew, turns, length, sets)
	if err != nil {
		return Config{}, err
	}
	last, err := rank(crew, 2*turns, length, again[:finalists])
	if err != nil {
		return Config{}, err
	}
	return last[0], nil
}

// ways are the ways of computing the CRC, with buffers that fit into any second-level cache.
func ways(payload, copies int) (all []Config) {
	for _, send := range []bool{false, true} {
		for _, recv := range []Recv{Apart, First, Last} {
			if copies == 2 && recv == First {
				continue
			}
			all = append(all, Config{Payload: payload, Copies: copies, Slots: 64, Burst: 16, Own: 16,
				Ways: Ways{send, recv}})
		}
	}
	return all
}

// workingSets are the numbers of buffers and bursts to try: from what the first-level cache holds
// to more than the second-level cache does.
func workingSets(c Config) (all []Config) {
	for _, c.Slots = range []int{16, 64, 128, 512, 2048} {
		for _, c.Burst = range []int{4, 16} {
			for _, c.Own = range []int{4, 64}[:c.Copies/2] {
				for _, c.Oldest = range []bool{false, true} {
					all = append(all, c)
				}
			}
		}
	}
	return all
}

// rank is cfgs, the fastest first.
func rank(crew *yard.Crew, turns int, length time.Duration, cfgs []Config) ([]Config, error) {
	type ranked struct {
		Config
		rate float64
	}
	var all []*yard.Contender
	for _, cfg := range cfgs {
		f, err := New(cfg)
		if err != nil {
			return nil, err
		}
		all = append(all, f.Contender(fmt.Sprint(cfg)))
	}
	series, err := crew.Take(turns, length, all...)
	if err != nil {
		return nil, err
	}
	order := make([]ranked, len(cfgs))
	for i, s := range series {
		order[i] = ranked{cfgs[i], s.Best()}
	}
	slices.SortStableFunc(order, func(a, b ranked) int { return cmp.Compare(b.rate, a.rate) })
	for i := range order {
		cfgs[i] = order[i].Config
	}
	return cfgs, nil
}
