"""Writes messages to a broker: the original message with a new delivery tag and our headers.

Letters enter, and each leaves as confirmed, refused, unsent or uncertain. It may not know the store.
"""
