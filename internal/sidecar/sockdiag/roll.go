package sockdiag

// leftMost bounds the sockets whose destruction is expected.
const leftMost = 1 << 16

// Roll distinguishes, among destroyed sockets, those that an earlier look at the table has shown from those that were
// opened and closed between two looks. On a busy machine, where looks are late, the second kind is the rule.
//
// The caller keeps the sockets that it sees in the table, and reports those that have disappeared from it.
type Roll struct {
	left map[uint64]struct{} // seen, gone from the table, not yet reported as destroyed
}

// Left records a socket that an earlier look saw and the table no longer has.
func (r *Roll) Left(cookie uint64) {
	if r.left == nil || len(r.left) >= leftMost { // an entry that stays costs memory; one that is dropped, one false arrival
		r.left = make(map[uint64]struct{})
	}
	r.left[cookie] = struct{}{}
}

// Unseen reports whether no look has shown a destroyed socket. seen is true when the
// caller still has it among those that it sees.
func (r *Roll) Unseen(cookie uint64, seen bool) bool {
	if seen {
		return false
	}
	if _, ok := r.left[cookie]; ok {
		delete(r.left, cookie)
		return false
	}
	return true
}
