/* SPDX-License-Identifier: Apache-2.0 */

/* What the theme leaves out for those who use a keyboard or have pages read to them. */
"use strict";

/* What scrolls sideways in a box of its own can be reached with the keyboard, as long as it does scroll. */
function markScrolling() {
  for (const box of document.querySelectorAll("article pre, article .table-wrapper, article figure")) {
    if (box.scrollWidth > box.clientWidth) {
      box.tabIndex = 0;
    } else if (!box.matches("figure.chart")) {
      box.removeAttribute("tabindex");
    }
  }
}

/* Charts: each figure has its specification, and becomes interactive when it is seen or reached with the keyboard. */
const vegaAddress = new URL("vega.js", document.currentScript.src);
const darkScheme = window.matchMedia("(prefers-color-scheme: dark)");
let vegaLoaded = null;

function loadVega() {
  vegaLoaded ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = vegaAddress;
    script.onload = resolve;
    script.onerror = reject;
    document.head.append(script);
  });
  return vegaLoaded;
}

function isDark() {
  const theme = document.body.dataset.theme;
  return theme === "dark" || (theme !== "light" && darkScheme.matches);
}

/* The specification as it fits the figure's width and the page's theme; the theme's colours are in it once each. */
function fitted(figure) {
  let text = figure.querySelector(".chart-spec").textContent;
  if (isDark()) {
    const dark = JSON.parse(text).usermeta.dark;
    text = text.replace(/"#[0-9A-F]{6}"/g, (colour) => JSON.stringify(dark[colour.slice(1, 8)] ?? colour.slice(1, 8)));
  }
  const spec = JSON.parse(text);
  if (spec.usermeta.legend) {
    const room = Math.max(figure.clientWidth - spec.padding.left - spec.padding.right, 140);
    spec.config.axis.labelOverlap = room < spec.width;
    spec.width = room;
    foldLegend(spec, figure.clientWidth - spec.padding.left);
  }
  if (spec.usermeta.beside) {
    foldPlots(spec, figure.clientWidth);
  }
  return spec;
}

/* Plots beside each other come below each other where there is no room, and as narrow as it takes. */
function foldPlots(spec, width) {
  const { around, columns, px } = spec.usermeta.beside;
  const taken = spec.hconcat.reduce((sum, view) => sum + view.width + around, 0);
  if (taken <= width) {
    return;
  }
  spec.vconcat = spec.hconcat;
  delete spec.hconcat;
  for (const view of spec.vconcat) {
    view.width = Math.max(Math.min(view.width, width - around), 140);
    showColumns(view, Math.max(1, Math.min(columns, Math.floor(width / px))));
  }
}

function showColumns(view, columns) {
  for (const channel of view.layer.flatMap((layer) => Object.values(layer.encoding ?? {}))) {
    if (channel?.legend?.columns) {
      channel.legend.columns = columns;
    }
  }
}

/* A legend has fewer columns in less room, and more lines. */
function foldLegend(spec, room) {
  const { columns, px, names } = spec.usermeta.legend;
  const fewer = Math.max(1, Math.min(columns, Math.floor(room / px)));
  if (fewer < columns) {
    spec.padding.top += 20 * (Math.ceil(names / fewer) - Math.ceil(names / columns));
    showColumns(spec, fewer);
  }
}

async function drawChart(figure) {
  try {
    await loadVega();
    const image = figure.querySelector("img");
    let view = figure.querySelector(".chart-view");
    if (!view) {
      view = document.createElement("div");
      view.className = "chart-view";
      image.before(view);
    }
    const tooltip = { theme: isDark() ? "dark" : "light" };
    await vegaEmbed(view, fitted(figure), { actions: false, renderer: "svg", tooltip });
    view.setAttribute("role", "img"); // Vega gives every view one name
    view.setAttribute("aria-label", image.alt);
    const drawn = view.querySelector("svg");
    drawn.setAttribute("aria-hidden", "true"); // the view has the name
    drawn.style.minWidth = `${Math.min(drawn.width.baseVal.value, 0.825 * drawn.viewBox.baseVal.width)}px`; // text of 9 px
    figure.classList.add("interactive");
  } catch (error) {
    figure.classList.remove("interactive"); // the picture stays
    console.warn("The chart stays a picture:", error);
  }
}

function watchCharts() {
  const figures = [...document.querySelectorAll("figure.chart:has(> .chart-spec)")];
  const started = new Set();
  const start = (figure) => {
    if (!started.has(figure)) {
      started.add(figure);
      drawChart(figure);
    }
  };
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting) {
        start(entry.target);
      }
    }
  });
  for (const figure of figures) {
    figure.tabIndex = 0;
    figure.addEventListener("focus", () => start(figure));
    seen.observe(figure);
  }
  const redraw = () => started.forEach(drawChart);
  darkScheme.addEventListener("change", redraw);
  new MutationObserver(redraw).observe(document.body, { attributeFilter: ["data-theme"] });
}

/* The headline table as Markdown, for a ticket: whole, or the row that was linked to. */
function offerMarkdown() {
  for (const table of document.querySelectorAll("table.headlines")) {
    const button = document.createElement("button");
    button.className = "copy";
    button.textContent = "Copy as Markdown";
    button.addEventListener("click", async () => {
      const target = table.querySelector("tbody tr:target");
      const rows = [...table.querySelectorAll("tr")].filter((row) => !target || row === target || row.closest("thead"));
      const cells = (row) => [...row.cells].map((cell) => cell.innerText.replace("\u00b6", "").trim().replaceAll("|", "\\|"));
      const lines = rows.map((row) => `| ${cells(row).join(" | ")} |`);
      lines.splice(1, 0, `|${" --- |".repeat(rows[0].cells.length)}`);
      const title = document.querySelector("h1")?.innerText.replace("\u00b6", "").trim() ?? "";
      await navigator.clipboard.writeText(`${title}\n\n${lines.join("\n")}\n`);
      button.textContent = "Copied";
    });
    table.closest(".table-wrapper").after(button);
  }
}

window.addEventListener("resize", markScrolling);
window.addEventListener("load", () => {
  watchCharts();
  offerMarkdown();
  markScrolling();
  document.querySelector(".sidebar-drawer")?.setAttribute("aria-label", "Site");
  document.querySelector(".toc-drawer")?.setAttribute("aria-label", "On this page");
  if (document.getElementById("search-results") && !document.querySelector("h1")) {
    const title = document.createElement("h1");
    title.textContent = "Search";
    document.getElementById("search-results").before(title);
  }
});
