"""Sphinx configuration: `make docs` builds docs/_build/html."""

import re
import warnings
from importlib.resources import files
from typing import Any

from docutils import nodes

import meanmap

project = "meanmap"
author = "meanmap developers"
copyright = "2026, meanmap developers"
version = release = meanmap.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "gallery", "tutorials", "sg_execution_times.rst"]
default_role = "code"  # single backticks in docstrings

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "smartquotes"]
myst_heading_anchors = 3

autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = True
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_custom_sections = ["Properties"]  # see list_attributes

# Every plot_*.py of docs/tutorials and docs/gallery runs at build time.
sphinx_gallery_conf = {
    "examples_dirs": ["tutorials", "gallery"],
    "gallery_dirs": ["auto_tutorials", "auto_gallery"],
    "subsection_order": [
        "gallery/comparing",
        "gallery/dependence",
        "gallery/conditional",
        "gallery/filtering",
        "gallery/graphical",
        "gallery/simulators",
        "gallery/learning",
        "gallery/adaptation",
        "gallery/causal",
        "gallery/kernels",
        "gallery/scale",
    ],
    "within_subsection_order": "FileNameSortKey",
    "filename_pattern": r"/plot_",
    "matplotlib_animations": False,
    "min_reported_time": 5,
    "show_memory": False,
    "show_signature": False,
    "abort_on_example_error": True,
    "plot_gallery": True,
    "download_all_examples": False,
    "write_computation_times": False,
}
# Agg cannot show a window, and says so at each plt.show().
warnings.filterwarnings("ignore", message=".*Agg.*", category=UserWarning)

html_theme = "furo"
html_title = f"meanmap {release}"
html_theme_options = {"sidebar_hide_name": False}
html_static_path = ["_static"]
html_css_files = ["meanmap.css"]

# MathJax as one file from a Python package, beside the pages: they load nothing from elsewhere.
MATHJAX = files("sphinx-mathjax-offline") / "static" / "mathjax" / "tex-svg-full.js"
html_static_path += [str(MATHJAX)]
mathjax_path = MATHJAX.name


def drop_module_docstring(
    app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Leave out docstrings of packages: the reference says the same in Markdown."""
    if what == "module":
        lines.clear()


def list_attributes(
    app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Attributes as a plain list, `names : what they are`.

    Left to napoleon they would be declared a second time, beside the properties among them.
    """
    text = "\n".join(lines)
    match = re.search(r"^Attributes\n-+\n((?:.+\n?)+)", text, flags=re.MULTILINE)
    if match is None:
        return
    entries = re.sub(r"\n +", " ", match[1].strip()).split("\n")
    pairs = (entry.partition(" : ") for entry in entries)
    items = [f"* ``{names}``: {meaning}" for names, _, meaning in pairs]
    listed = "\n".join(["Properties", "----------", *items, ""])
    lines[:] = (text[: match.start()] + listed + text[match.end() :]).split("\n")


def escape_bars(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """`|x - y|` in a docstring is an absolute value, not a substitution of reStructuredText."""
    for i, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...")):
            parts = re.split(r"(`+[^`]*`+)", line)  # what stands in backticks stays
            parts[::2] = [part.replace("|", "\\|") for part in parts[::2]]
            lines[i] = "".join(parts)


def skip_plumbing(
    app: Any, what: str, name: str, obj: Any, skip: bool, options: Any
) -> bool | None:
    """Leave out what scikit-learn adds to every estimator for metadata routing."""
    return True if re.fullmatch(r"set_\w+_request|get_metadata_routing", name) else None


def trim_examples(app: Any, doctree: Any) -> None:
    """Doctests in Markdown end with an empty line, which pages need not show."""
    for block in doctree.findall(nodes.literal_block):
        if block.rawsource == block.astext():  # what Sphinx highlights
            block.rawsource = block.rawsource.rstrip("\n")
            block[:] = [nodes.Text(block.rawsource)]


def setup(app: Any) -> None:
    app.connect("doctree-read", trim_examples)
    app.connect("autodoc-process-docstring", drop_module_docstring)
    app.connect("autodoc-process-docstring", list_attributes, priority=100)  # before napoleon
    app.connect("autodoc-process-docstring", escape_bars)
    app.connect("autodoc-skip-member", skip_plumbing)
