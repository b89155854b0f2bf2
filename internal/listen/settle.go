package listen

import "time"

// Settle is how long a listener that is about to be closed is still accepted from as
// usual. A client regards its connection as established one way before it is in the
// listener's queue: on the same node that is microseconds.
const Settle = time.Millisecond
