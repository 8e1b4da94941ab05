"""An answer as one self-contained page of HTML: nothing is loaded, the same answer makes the same bytes."""
