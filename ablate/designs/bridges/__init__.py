"""Designs inside other tools' loops. A folder of its own, so that looking up the kinds of design imports no tool."""
