"""An answer as one page of HTML that stands alone: nothing is loaded, the same answer makes the same bytes."""
