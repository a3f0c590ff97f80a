"""From a letter to a message that may be sent: ``repair`` opens it once, changes it, and has it checked
(``checks``). ``edit`` changes a message by hand."""
