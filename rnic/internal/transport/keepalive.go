package transport

// Keep-alives of a connection with a UserTimeout: the first after half of it, four in all, and
// after them the end.
const (
	keepAliveIdle     = 2
	keepAliveInterval = 8
	keepAliveCount    = 4
)
