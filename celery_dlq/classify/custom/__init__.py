"""The user's own rules.

Settings and options of tasks enter; checked rules leave, or errors for rules that cannot work. Judging a
failure never imports anything; only the check of names does.
"""
