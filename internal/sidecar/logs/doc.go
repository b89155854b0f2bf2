// Package logs writes log lines without blocking on their reader.
//
// The promises:
//
//   - Writing a line never blocks: a stalled reader (a full pipe, a paused terminal, a hung disk) costs lines, not
//     time.
//   - The buffer for the reader is bounded in bytes, and so is a line.
//   - Dropped lines are counted.
//   - Close delivers the buffer to a reader that reads, and gives up on one that does not.
//   - A message that a peer can cause repeatedly is logged once per interval, with the number of suppressed ones
//     (Throttle).
package logs
