"""What people see of a run: console tables, the HTML page, Markdown, CSV and JUnit.

It reads a Summary and, for raw points only, the records; it measures nothing, judges nothing and opens no network.
Doors: `text` (console, Markdown, CSV), `page` (the HTML), `export` (files), `junit`.
"""
