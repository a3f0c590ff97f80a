"""``dlq mcp``: tools for an assistant, which read and propose. A call enters as JSON, becomes the command
line of another command, and leaves with every text from outside in a frame. Nothing here changes anything."""
