"""Parts of pages: words, links, charts, tracebacks and the template loader. Values enter and HTML leaves; the
store and the request are unknown here."""
