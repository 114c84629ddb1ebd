package bench

func vethPart(y *yardstick)   {}
func tapPart(y *yardstick)    {}
func demoPart(y *yardstick)   {}
func ucxPart(y *yardstick)    {}
func gvisorPart(y *yardstick) {}
