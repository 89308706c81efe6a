# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
"""A hook for MkDocs. It marks prose in tables for site.css, sets the rank of pages in search results, and adds the JSON
schemas in the directory SCHEMAS to the site."""

import os
import re
from pathlib import Path

from mkdocs.structure.files import File

CELL = re.compile(r"<td>(.*?)</td>", re.DOTALL)
TAG = re.compile(r"<[^>]*>")

# Characters. Shorter cells are names and figures.
PROSE = 50


def on_page_markdown(_, page, config, **__):
    boost = next((b for name, b in config.extra["search_boost"].items() if page.file.src_uri.startswith(name)), None)
    if boost:
        page.meta.setdefault("search", {})["boost"] = boost


def on_files(files, config, **_):
    directory = Path(os.environ["SCHEMAS"])
    for path in directory.rglob("*.json"):
        name = Path("schemas") / path.relative_to(directory)
        files.append(File.generated(config, name.as_posix(), abs_src_path=str(path)))


def on_page_content(html, **_):
    def mark(match):
        text = TAG.sub("", match[1])
        return f'<td class="prose">{match[1]}</td>' if len(text) > PROSE and " " in text else match[0]

    return CELL.sub(mark, html)
