package wq

// Request is a work request out of its ring, with room for what followed it there.
type Request struct {
	WQE          // Op 0: none
	List  []SGE  // the first More of them are its ranges after Local
	Data  []byte // of these Local.Length are its inline octets
	Ready bool   // a Source has made it and it was checked: it is to be carried out
}

// Total is how many octets it sends or reads, or has room for.
func (r *Request) Total() uint64 {
	n := uint64(r.Local.Length)
	for i := range r.List[:r.More] {
		n += uint64(r.List[i].Length)
	}
	return n
}
