package transparency

const parsed = "http auto captured"

// byDesign are the rows in which a client observes something else, and why that stays so. One that is no longer worse has
// to go.
var byDesign = []exception{
	{"raw/HTTP, empty lines before a request", parsed, "empty lines before a request are not forwarded (RFC 9112, 2.2)"},
	{"raw/HTTP, LF lines in a request", parsed, "an app or a proxy in front may find another end of a request whose lines end in LF alone"},
	{"/length and chunks", parsed, "the client gets the chunks (RFC 9112, 6.3); without a sidecar one reads the length"},
	{"raw/HTTP, Expect answered", parsed, "what follows a final answer to Expect may be the body or the next request (RFC 9110, 10.1.1): the answer announces the close"},
}
