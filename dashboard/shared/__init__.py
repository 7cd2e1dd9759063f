"""Shared by the pages: cached reads, colours, exports, links, and escaping of users' text."""
