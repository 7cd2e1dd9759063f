"""How fast blocks are on this machine: measured side by side, told in rows."""
