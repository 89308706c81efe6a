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

// The search takes each word for the beginning of one, so that "I" and "on" match almost every page. The theme's worker gets
// questions without the words that say nothing, unless there is no other.
const filler = new Set("a an and are as at be by can do does for from how i if in is it me my of on or the to we what when where which why with you your".split(" "))
const query = 2 // the type of the message
const send = Worker.prototype.postMessage
Worker.prototype.postMessage = function (message, ...rest) {
  if (message?.type === query) {
    const words = message.data.split(/\s+/)
    const telling = words.filter(word => !filler.has(word.toLowerCase()))
    message = {...message, data: telling.length ? telling.join(" ") : message.data}
  }
  return send.call(this, message, ...rest)
}

// Screen readers read this name when the search opens.
document.querySelector("[data-md-component=search]").ariaLabel = "Search"
