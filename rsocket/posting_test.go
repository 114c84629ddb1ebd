package rsocket

// errOf is the error of a call whose other result does not matter.
func errOf[V any](_ V, err error) error { return err }
