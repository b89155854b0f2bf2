package transparency

const parsed = "http auto captured"

// byDesign are the rows in which a client observes something else, and why that stays so.
var byDesign = []exception{
	{"/end in a head", parsed, "half a head is no response: the client gets a 502, because the app may have acted and an end without a byte is repeated"},
	{"raw/HTTP, empty lines before a request", parsed, "empty lines before a request are not forwarded (RFC 9112, 2.2)"},
}

// pending are rows that wait for a change, by the point of the list of deviations. One that is no longer worse has to go.
var pending = []exception{
	{"raw/HTTP, LF lines in a request", parsed, "(g) LF heads, of a request"},
	{"/reset in a head", parsed, "(f) an end without a byte is repeated"},
	{"/length and chunks", parsed, "responses that become a 502"},
	{"/body until a reset", "tcp", "(c) a reset becomes a FIN"},
	{"/reset in a head", "tcp", "(c) a reset becomes a FIN"},
	{"raw/the app resets", opaque, "(c) a reset becomes a FIN"},
	{"raw/the client resets", opaque, "(c) a reset becomes a FIN"},
	{"raw/upgrade, reset by", all, "(c) a reset becomes a FIN"},
	{"raw/HTTP, idle, reset by the app", "tcp", "(c) a reset becomes a FIN"},
	{"raw/HTTP, reset ", "tcp", "(c) a reset becomes a FIN"},
	{"raw/HTTP, the second reset", "tcp", "(c) a reset becomes a FIN"},
	{"raw/HTTP, until a reset", "tcp", "(c) a reset becomes a FIN"},
	{"raw/HTTP, Expect answered", parsed, "(b) Expect"},
	{"half-close", "auto captured", "(d) the first word"},
	{", then a wait", "auto captured", "(d) the first word"},
	{"raw/server first, ", "auto captured", "(e) the first bytes of a server"},
}
