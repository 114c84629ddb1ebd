package stack

// addrWaiters wait for a change to one of our addresses.
type addrWaiters []func() (again bool)

// add has try wait; false: most do, and none of them has given up.
func (w *addrWaiters) add(try func() (again bool), most int) bool {
	if len(*w) >= most {
		w.tell() // some have given up
	}
	if len(*w) >= most {
		return false
	}
	*w = append(*w, try)
	return true
}

// tell calls those that wait: there was a change.
func (w *addrWaiters) tell() {
	waiting := *w
	*w = nil
	for _, try := range waiting {
		if try() {
			*w = append(*w, try)
		}
	}
}
