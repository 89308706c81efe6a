// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Readers without a mouse scroll a wide table or diagram with the arrow keys, for which it needs the focus.
// The theme does the same for code.
const wide = () => {
  for (const element of document.querySelectorAll(".md-typeset__scrollwrap, .md-typeset p:has(> img, > a > img)")) {
    if (element.scrollWidth > element.clientWidth) element.tabIndex = 0
    else element.removeAttribute("tabindex")
  }
}
new ResizeObserver(wide).observe(document.querySelector("article"))
addEventListener("load", wide)

// Screen readers read this name when the search opens.
document.querySelector("[data-md-component=search]").ariaLabel = "Search"
