"""Parts of text screens that several answers share."""
