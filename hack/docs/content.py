# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
"""A hook for MkDocs. It marks prose in tables for site.css, and sets the rank of pages in search results."""

import re

CELL = re.compile(r"<td>(.*?)</td>", re.DOTALL)
TAG = re.compile(r"<[^>]*>")

# Characters. Shorter cells are names and figures.
PROSE = 50


def on_page_markdown(_, page, config, **__):
    boost = config.extra["search_boost"].get(page.file.src_uri)
    if boost:
        page.meta.setdefault("search", {})["boost"] = boost


def on_page_content(html, **_):
    def mark(match):
        text = TAG.sub("", match[1])
        return f'<td class="prose">{match[1]}</td>' if len(text) > PROSE and " " in text else match[0]

    return CELL.sub(mark, html)
