package admin

import (
	"fmt"
	"net/http"
	"strings"
)

// page is an HTML document that loads nothing.
func page(title, body string) answer {
	return answer{status: http.StatusOK, media: mediaHTML, body: []byte("<!DOCTYPE html>\n<html lang='en'>\n<head>\n" +
		"<meta charset='utf-8'>\n<title>" + escapeHTML(title) + "</title>\n" +
		"<style>body { font-family: sans-serif; color-scheme: light dark; } td { padding: 4px; }</style>\n" +
		"</head>\n<body>\n" + body + "</body>\n</html>\n")}
}

// home is the page for people: each command, and a button if it changes something.
func (s *Server) home(query) answer {
	var b strings.Builder
	b.WriteString("<table>\n<tr><th>Command</th><th>Description</th></tr>\n")
	for _, c := range s.table {
		if c.path == "/" {
			continue
		}
		path := escapeHTML(strings.TrimPrefix(c.path, "/"))
		link := "<a href='" + path + "'>" + path + "</a>"
		if c.mutates {
			link = "<form action='" + path + "' method='post'><button>" + path + "</button></form>"
		}
		fmt.Fprintf(&b, "<tr><td>%s</td><td>%s</td></tr>\n", link, escapeHTML(c.help))
	}
	b.WriteString("</table>\n")
	return page("Envoy Admin", b.String())
}

// escapeHTML is html.EscapeString, whose package comes with a table of every
// entity there is.
var escapeHTML = strings.NewReplacer("&", "&amp;", "'", "&#39;", "<", "&lt;", ">", "&gt;", `"`, "&#34;").Replace
