/* SPDX-License-Identifier: Apache-2.0 */

/* What the theme leaves out for those who use a keyboard or have pages read to them. */
"use strict";

/* What scrolls sideways in a box of its own can be reached with the keyboard, as long as it does scroll. */
function markScrolling() {
  for (const box of document.querySelectorAll("article pre, article .table-wrapper, article figure")) {
    if (box.scrollWidth > box.clientWidth) {
      box.tabIndex = 0;
    } else {
      box.removeAttribute("tabindex");
    }
  }
}

window.addEventListener("resize", markScrolling);
window.addEventListener("load", () => {
  markScrolling();
  document.querySelector(".sidebar-drawer")?.setAttribute("aria-label", "Site");
  document.querySelector(".toc-drawer")?.setAttribute("aria-label", "On this page");
  if (document.getElementById("search-results") && !document.querySelector("h1")) {
    const title = document.createElement("h1");
    title.textContent = "Search";
    document.getElementById("search-results").before(title);
  }
});
