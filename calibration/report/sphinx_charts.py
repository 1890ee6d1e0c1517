# SPDX-License-Identifier: Apache-2.0
"""Sphinx extension: add the dark variant and the interactive specification to figures of class ``chart``.

In reStructuredText a chart is a plain figure of its light SVG. The files beside it, ``-dark.svg`` and ``.vl.json``, are
added to HTML only; the page's script makes it interactive if JavaScript runs.
"""

import shutil
from importlib.metadata import version
from pathlib import Path
from typing import Any

import vl_convert
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

from calibration.base import places
from calibration.report.pictures import VERSION, interactive


class Charts(SphinxTransform):
    """Adds the files beside a chart's SVG to its figure."""

    default_priority = 200  # before images are collected

    def apply(self, **_: Any) -> None:
        """Transform the figures of one document."""
        if self.app.builder.format != "html":
            return
        for figure in list(self.document.findall(nodes.figure)):
            image = figure.next_node(nodes.image)
            if image is None or "chart" not in figure["classes"]:
                continue
            stem: str = image["uri"].removesuffix(".svg")
            spec = self.env.relfn2path(f"{stem}.vl.json", self.env.docname)[1]
            if not Path(spec).is_file():
                continue
            self.env.note_dependency(spec)
            dark = image.deepcopy()
            dark["uri"] = f"{stem}-dark.svg"
            for item, theme in ((image, "only-light"), (dark, "only-dark")):
                item["classes"] = [*item["classes"], theme]
                item["loading"] = "lazy"
            script = interactive(Path(spec).read_text(encoding="utf-8"))
            image.parent.insert(image.parent.index(image) + 1, [dark, nodes.raw("", script, format="html")])


def _write_bundle(app: Sphinx, error: Exception | None) -> None:
    """Write Vega, Vega-Lite and vega-embed to the site's scripts, once per version of the renderer."""
    if error is not None or app.builder.format != "html":
        return
    kept = places.CACHE / f"vega-{VERSION}-{version('vl-convert-python')}.js"
    if not kept.is_file():
        kept.parent.mkdir(parents=True, exist_ok=True)
        pending = kept.with_suffix(".pending")
        script = vl_convert.javascript_bundle(vl_version=VERSION)  # type: ignore[call-arg] # optional, as its help says
        # its own scope: names must not clash with the page's other scripts
        pending.write_text(f"(() => {{\n{script}\n}})();\n", encoding="utf-8")
        pending.replace(kept)
    shutil.copyfile(kept, Path(app.outdir) / "_static" / "vega.js")


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the extension."""
    app.add_transform(Charts)
    app.connect("build-finished", _write_bundle)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
