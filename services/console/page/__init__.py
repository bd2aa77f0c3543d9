"""Self-contained HTML pages: `markup.py` escapes by construction, `svg.py` and `charts.py` draw,
`article.py` is a page of sections, as HTML and as Markdown. Pure.
"""
