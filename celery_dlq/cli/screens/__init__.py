"""Values as text for a terminal, a pipe or a program: tables, facts, progress. Values enter and text leaves.
Screens read no store and run no command."""
