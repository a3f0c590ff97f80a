"""From a letter to a message that may be sent: ``prepare`` opens it once, has it changed (``repair``), and
has it checked (``checks``). ``edit`` changes a message by hand."""
