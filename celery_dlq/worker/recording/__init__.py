"""From a letter to the store, or the spool: nothing is acknowledged before."""
