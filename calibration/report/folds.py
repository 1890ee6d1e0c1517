# SPDX-License-Identifier: Apache-2.0
"""A Sphinx extension: folded parts of pages become ``<details>``, which need no JavaScript, and link their method page.

In reStructuredText a folded part is an admonition of the class ``fold``, and its method a paragraph of the class
``method`` that names the measurement kind; both read well where nobody folds.
"""

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.typing import ExtensionMetadata
from sphinx.writers.html5 import HTML5Translator


class Details(nodes.General, nodes.Element):
    """A part that is folded."""


class Summary(nodes.General, nodes.TextElement):
    """Its title, which is always shown."""


def _visit_details(translator: HTML5Translator, node: Details) -> None:
    translator.body.append(translator.starttag(node, "details", CLASS="fold"))


def _depart_details(translator: HTML5Translator, node: Details) -> None:
    del node
    translator.body.append("</details>\n")


def _visit_summary(translator: HTML5Translator, node: Summary) -> None:
    translator.body.append(translator.starttag(node, "summary", ""))


def _depart_summary(translator: HTML5Translator, node: Summary) -> None:
    del node
    translator.body.append("</summary>\n")


class Fold(SphinxPostTransform):
    """Exchange the admonitions."""

    default_priority = 400
    formats = ("html",)

    def run(self, **kwargs: object) -> None:
        """Exchange them in one document."""
        del kwargs
        for admonition in list(self.document.findall(nodes.admonition)):
            if "fold" in admonition["classes"]:
                title, *body = admonition.children
                ids = [*admonition["ids"]]
                details = Details("", Summary("", "", *title.children), *body, ids=ids)
                admonition.replace_self(details)
        for paragraph in list(self.document.findall(nodes.paragraph)):
            if "method" in paragraph["classes"]:
                self._link(paragraph)

    def _link(self, paragraph: nodes.paragraph) -> None:
        page = f"method/{paragraph.astext()}"
        if page not in self.env.all_docs:
            paragraph.parent.remove(paragraph)
            return
        uri = self.app.builder.get_relative_uri(self.env.docname, page)
        link = nodes.reference("", f"How it is measured: {self.env.titles[page].astext()}", refuri=uri, internal=True)
        paragraph.replace_self(nodes.paragraph("", "", link, classes=["method"]))


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register the extension with Sphinx."""
    app.add_node(Details, html=(_visit_details, _depart_details))
    app.add_node(Summary, html=(_visit_summary, _depart_summary))
    app.add_post_transform(Fold)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
