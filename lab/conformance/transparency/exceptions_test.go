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
	{"raw/HTTP, Expect answered", parsed, "(b) Expect"},
	{", then a wait", "auto captured", "(d) the first word"},
}
