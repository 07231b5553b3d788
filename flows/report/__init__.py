"""Results of a stage as a page of HTML, as Markdown and in a terminal: blocks, their renderers, and the pages."""
