package main

import (
	"regexp"
	"strings"
)

// rule is a wording and its replacement.
type rule struct {
	name    string
	pattern *regexp.Regexp
	// except matches the text from a few words before the finding to a few words after it where the wording is right.
	except  *regexp.Regexp
	instead string
}

// words compiles a pattern, in which a space stands for any white space, a line break included.
func words(pattern string) *regexp.Regexp {
	return regexp.MustCompile(`(?i)` + strings.ReplaceAll(pattern, " ", `(?:[ \t]+|[ \t]*\n[ \t]*)`))
}

func newRule(name, pattern, except, instead string) rule {
	r := rule{name: name, pattern: words(pattern), instead: instead}
	if except != "" {
		r.except = words(except)
	}
	return r
}

// rules are in the order of docs/writing.md, which explains them.
var rules = []rule{
	newRule("accepted is", `\baccepted (is|are)\b`,
		`(connection|request|is|was|being) accepted (is|are)|accepted is called`, `"must be X or Y"`),
	newRule("be had", `\b(be|is|are|was|were|been|being) had\b`, ``, `"unavailable", "not found"`),
	newRule("nobody", `\b(nobody|somebody|whoever|anybody|everybody)\b`, ``, "name the client, peer, caller or request"),
	newRule("anew", `\banew\b`, ``, `"again", or name what is new`),
	newRule("told", `\b(un)?told\b`, ``, `the active voice: "X sends Y to Z", "X notifies Z"`),
	newRule("tell", `\b(tells?|telling)\b`, ``, `"reports", "notifies", "sends"; "distinguishes" for telling apart`),
	newRule("said", `\bsaid\b`, ``, `"reported", "sent", "set", "announced"`),
	newRule("say",
		`\bsaying\b|\bsay (it|a|an|the|which|one|them|what|how|so|after|before|where|whether)\b`+
			`|\bsays (so|it|which|what|who|how|where|whether|why|when|that|goodbye)\b`, ``,
		`"set", "specify", "state"; "reports whether" of a function`),
	newRule("any more", `\bany ?more\b`, `any more (than|of|bytes|data|frames|requests|connections)`, `"no longer"`),
	newRule("beside", `\bbeside\b`, ``, `"next to" for places, "in addition to" otherwise`),
	newRule("who", `\bwho\b`,
		`(users?|people|engineers?|operators?|maintainers?|readers?|developers?|contributors?|person|someone|anyone|`+
			`everyone|those) who`,
		"name the client, peer, caller or request"),
	newRule("what comes",
		`\bwhat (comes|came|goes|went|cannot|there (is|are|was)|is (open|left|there|in|meant|asked|spoken))\b`, ``,
		`the thing: "connections", "the response", "requests in flight"`),
	newRule("is what", `\b(is|are|guards) what\b`, ``, `the noun: "X is the limit of …", "guards the fields below"`),
	newRule("way in", `\bways? (in|out)\b`, `ways? in which`, `"inbound listener", "outbound connections"`),
	newRule("go by", `\b(go|goes|went|gone|going) by\b`, ``, `"uses", "depends on", "follows"`),
	newRule("as it stands", `\bas (it|they) stands?\b`, ``, `"unchanged", "currently"`),
	newRule("asked", `\b(is|are|was|were|be|been|being) asked\b|\basked for\b`, ``,
		`the active voice: "the client requests …", "requested"`),
	newRule("theatre", `\b(theat(re|er)s?|actors?|visitors?|habits?|manners?|curtains?)\b`, ``,
		"the field's words: environment, program, test, behaviour"),
	newRule("taken back", `\b(tak(e|en|es|ing)|took)( it| them)? back\b`, ``, `"cancelled", "undone"`),
	newRule("learnt", `\blearnt\b`, ``, `"learned", "received"`),
	newRule("let go", `\b(lets?|letting) go\b`, ``, `"releases", "closes", "drops"`),
	newRule("archaic", `\b(thereby|whereupon|hence|whence|wherein|thence|lest|nought|(?-i:shall))\b`, ``,
		`"so", "then", "must"`),
	newRule("bear", `\b(bears?|borne)\b`, ``, `"tolerates", "handles"`),
	newRule("mend", `\bmend(s|ed|ing)?\b`, ``, `"fix"`),
	newRule("possessive", `\b(is|are) [A-Za-z.]+'s\.`, ``, `the noun: "implements X", "the default of X"`),
	newRule("goodbye", `\bgoodbyes?\b`, ``, `"GOAWAY", "Connection: close", "close frame"`),
	newRule("without effect", `\bwithout effect\b`, ``, `"ignored", "has no effect"`),
	newRule("is over", `\b(is|are|was|were|be|been) over\b`,
		`over (a|an|the|its|one|its own|[0-9A-Z]\S*) (limit|budget|maximum|MiB|KiB|connection|socket|TLS|TCP)`+
			`|(?-i:over (TLS|TCP|HTTP|UDP|IP)|over [0-9])`,
		`"has ended", "has passed", "is complete"`),
	newRule("spoken to", `\bspoken (to|of|in)\b`, ``, `the active voice: "X connects to Y", "the protocol of …"`),
	newRule("goes on", `\b(go|goes|went|going|gone) on\b`, ``, `"continues"; "happens"`),
	newRule("for ever", `\bfor ever\b`, ``, `"forever", "without a limit"`),
	newRule("known", `\b(is|are|was|were|be|been|being)( not)? known\b`, `known (as|to|for|by|in|and|good|from)`,
		`the active voice: "X knows", "X has received"; "unknown"`),
	newRule("hear of", `\b(hears?|heard) of\b`, ``, `"receives", "is notified of"`),
	newRule("at the latest", `\bat the latest\b`, ``, `"no later than"`),
	newRule("under way", `\bunder way\b`, ``, `"in flight", "has begun"`),
	newRule("heed", `\bheed(s|ed|ing)?\b`, ``, `"respects"`),
	newRule("small letters", `\bsmall letters?\b`, ``, `"lower case"`),
}

// nameRules are for the words of Go identifiers.
var nameRules = []rule{
	newRule("name: said", `\bsaid\b`, ``, "the thing: output, logged, reported"),
	newRule("name: asked", `\basked\b`, ``, "requested, inFlight, hadRequest"),
	newRule("name: told", `\btold\b`, ``, "notified, received, signals"),
	newRule("name: deaf", `\bdeaf\b`, ``, "the thing that is ignored: ignoresContext"),
	newRule("name: role", `\b(heir|guest|meetings?|(?-i:visits?))\b`, ``, "client, server, connection"),
	newRule("name: state", `\b(glance|parting|armed)\b`, ``, "what is measured or awaited"),
}

// allowed are texts that keep a wording, each with the reason.
var allowed = []struct{ text, reason string }{
	{"nobody:", "the user"},
	{"user nobody", "the user"},
	{"Main benchmark duration is over for thread", "h2load's output"},
}
