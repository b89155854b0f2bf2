package course

import "time"

// Spare is what a grace period has beyond the end of the last request: the app gets its stop signal, and exits.
const Spare = time.Second

// Grace is the least grace period, in whole seconds, of a pod whose last request ends so long after the deletion.
func Grace(lastEnds time.Duration) time.Duration { return WholeSeconds(lastEnds) + Spare }

// WholeSeconds rounds up, because the fields of a pod are whole seconds.
func WholeSeconds(d time.Duration) time.Duration { return (d + time.Second - 1).Truncate(time.Second) }
