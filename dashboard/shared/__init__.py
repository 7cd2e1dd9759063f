"""What the pages share: cached reads, colours, exports, links, text of users made harmless."""
