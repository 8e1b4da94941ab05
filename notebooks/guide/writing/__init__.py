"""What the guide does not write by hand: flags, numbers, inputs, names of the API and studies, each from where it is declared."""
