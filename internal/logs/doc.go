// Package logs writes lines so that nothing waits for their reader.
//
// The promises:
//
//   - Writing a line never blocks: a reader that has stalled (a full pipe, a
//     paused terminal, a hung disk) costs lines, not time.
//   - What waits for the reader is bounded in bytes, and so is a line.
//   - Lines that are dropped are counted.
//   - Close delivers what waits to a reader that reads, and gives up on one that
//     does not.
//   - What a peer can cause again and again is logged once in an interval, with
//     the number of times it was left out (Throttle).
package logs
