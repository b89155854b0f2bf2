"""Makes the repository's documents a site: pages from outside docs/, links that leave it, and nothing from elsewhere."""

import os
import posixpath
import re

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

TOP = os.getcwd()
HOME = {"README.md": "index.md", "docs/README.md": "all.md", "deploy/chart/README.md": "chart.md"}  # in the repository: on the site
ADDED = ["README.md", "BENCHMARKS.md", "CHANGELOG.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "deploy/chart/README.md"]
GENERATED = "dist/reference"  # by lab/reference
LINK = re.compile(r'(\]\(|<img src=")(?![a-z]+:|#)([^)#"\s]*)')
BADGE = re.compile(r"^\[!\[[^\]]*\]\(https:[^)]*\)\]\([^)]*\)\n", re.MULTILINE)  # on the code's page alone: others serve them
ELSEWHERE = re.compile(r'<(?:script|img|iframe|link rel="(?:stylesheet|icon|preconnect)")[^>]*(?:src|href)="(?:https?:)?//[^"]*')


def on_config(config):
    if "MIKE_DOCS_VERSION" in os.environ:  # mike writes the versions.json that the selector of versions reads
        config.extra["version"] = {"provider": "mike"}
    for tab in config.nav:
        for group in [tab] + [entry for entry in list(tab.values())[0] if isinstance(entry, dict)]:
            for name, pages in group.items():
                if isinstance(pages, str) and pages.endswith("/*.md"):
                    folder = posixpath.dirname(pages)
                    group[name] = [f"{folder}/{page}" for page in sorted(os.listdir(f"docs/{folder}"), key=lambda p: (p != "README.md", p))]


def on_files(files, config):
    files.remove(files.get_file_from_path("README.md"))
    for path in ADDED + ["docs/README.md"]:
        with open(path) as text:
            files.append(File.generated(config, HOME.get(path, path), content=text.read()))
    for name in os.listdir(GENERATED):
        with open(f"{GENERATED}/{name}") as text:
            files.append(File.generated(config, f"reference/{name}", content=text.read()))


def on_page_markdown(markdown, page, config, files):
    path = next((a for a, b in HOME.items() if b == page.file.src_uri), page.file.src_uri)
    source = path if path in HOME or path in ADDED else "docs/" + path

    def link(match):
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), match[2]))
        if not os.path.exists(target):
            raise PluginError(f"{source}: there is no {target}")
        on_site = HOME.get(target, target.removeprefix("docs/"))
        if files.get_file_from_path(on_site):
            return match[1] + posixpath.relpath(on_site, posixpath.dirname(page.file.src_uri))
        return f"{match[1]}{config.repo_url}/blob/{os.environ.get('LASTCALL_REF', 'main')}/{target}"

    return LINK.sub(link, BADGE.sub("", markdown))


def on_page_content(html, page, config, files):
    return html.replace("\\|", "|")  # GitHub's escape of | in a table's code, which Python-Markdown keeps


def on_post_page(output, page, config):
    if found := ELSEWHERE.search(output):
        raise PluginError(f"{page.file.src_uri} loads something from elsewhere: {found[0]}")
