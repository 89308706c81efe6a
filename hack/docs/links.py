# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
"""A hook for MkDocs. It changes links to files outside of docs/, which the site doesn't have, to links to GitHub."""

import logging
import posixpath
import re
from pathlib import Path

log = logging.getLogger("mkdocs.hooks.links")

# The target of a link or image, up to its fragment.
LINK = re.compile(r"(?<=\]\()(\.\./[^)#\s]*)")


def on_page_markdown(markdown, page, config, **_):
    root = Path(config.config_file_path).resolve().parent  # mike gives it as a relative one
    docs = Path(config.docs_dir).relative_to(root)

    def on_github(match):
        path = posixpath.normpath(posixpath.join(docs, posixpath.dirname(page.file.src_uri), match[1]))
        if Path(path).is_relative_to(docs):
            return match[1]
        if not (root / path).exists():
            log.warning("%s: link %s: there is no %s", page.file.src_uri, match[1], path)
        kind = "tree" if (root / path).is_dir() else "blob"
        return f"{config.repo_url}/{kind}/{config.extra['ref']}/{path}"

    return LINK.sub(on_github, markdown)
