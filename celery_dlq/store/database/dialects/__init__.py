"""The differences between databases: one class for each that is supported, and what they share.

An SQLAlchemy URL or connection enters; the dialect that it belongs to leaves. The rest of the store asks that
dialect, and never which database it uses.
"""
