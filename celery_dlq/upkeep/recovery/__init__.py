"""Makes letters of the messages that were running when their worker was killed.

The flight recorder has kept these messages. A worker that starts, and each worker once a minute, looks for
files of processes that are gone. A message that ended after all is left out.
"""
