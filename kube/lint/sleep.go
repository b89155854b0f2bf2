package lint

import "github.com/lastcall-dev/lastcall/kube/termination"

// sleeps is the time that a hook sleeps at least; in a loop, which may sleep more often, isLoop is true.
var sleeps = termination.Sleeps
