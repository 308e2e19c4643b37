"""Sphinx: `make docs` lays the pages out in build/site (tools/make_site.py) and writes build/docs."""

import sys
from pathlib import Path

import transformer_c

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

project = "transformer_c"
author = "the authors of transformer_c"
version = release = transformer_c.__version__

extensions = ["sphinx.ext.autodoc", "numpydoc", "myst_nb"]
root_doc = "index"
default_role = "code"  # docstrings write `x` for an argument
add_module_names = False
toc_object_entries_show_parents = "hide"
python_use_unqualified_type_names = True
autodoc_typehints = "none"  # numpydoc's Parameters have them
autodoc_member_order = "groupwise"
numpydoc_show_class_members = False  # the pages of the reference list them

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
nb_execution_mode = "off"  # the notebooks are shown as they are committed
suppress_warnings = ["mystnb.unknown_mime_type"]

html_theme = "furo"
html_title = f"transformer_c {version}"
html_show_sourcelink = False
html_copy_source = False


def plain(app, what, name, obj, options, lines):
    """Docstrings are plain text and `code`: what else means something to reStructuredText is escaped, such as |x| and *args."""
    from make_site import escaped

    lines[:] = escaped("\n".join(lines)).split("\n")


def skip(app, what, name, obj, skipped, options):
    """Methods that scikit-learn adds to estimators are described in its own documentation."""
    return True if name.startswith("set_") and name.endswith("_request") else None


def setup(app):
    app.connect("autodoc-process-docstring", plain, priority=400)  # before numpydoc's
    app.connect("autodoc-skip-member", skip)
